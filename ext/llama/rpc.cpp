// llama.cpp's RPC backend: devices of other machines. Runs on the thread that opens the model, before it opens it.
#include "adapters.h"
#include "ggml-backend.h"
#include "shim.h"

#include <exception>

extern "C" int32_t llamad_rpc_add(const char *endpoint) {
    try {
        ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
        if (!rpc) return -1;
        void *add_server = ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server");
        if (!add_server) return -1;
        ggml_backend_reg_t worker = reinterpret_cast<decltype(&ggml_backend_rpc_add_server)>(add_server)(endpoint);
        if (!worker) return 0;
        // When a worker is told to compute the last graph again, it may be the graph of another context.
        adapters_decode_alone();
        ggml_backend_register(worker);
        return static_cast<int32_t>(ggml_backend_reg_dev_count(worker));
    } catch (const std::exception &e) {
        llamad_remember_error(e.what());
        return -1;
    }
}
