#include "adapters.h"

#include <algorithm>
#include <exception>
#include <map>
#include <pthread.h>
#include <vector>

namespace {

// Decodes of two contexts may run at the same time. A thread that changes the list gets the lock before the next
// decode.
class Lock {
  public:
    Lock() {
        pthread_rwlockattr_t attributes;
        pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
        pthread_rwlock_init(&lock, &attributes);
        pthread_rwlockattr_destroy(&attributes);
    }
    pthread_rwlock_t lock;
};

Lock held;
bool is_alone; // every decode takes the lock exclusively

class Changing {
  public:
    Changing() { pthread_rwlock_wrlock(&held.lock); }
    ~Changing() { pthread_rwlock_unlock(&held.lock); }
};

std::map<int32_t, llama_adapter_lora *> adapters;
std::map<llama_context *, std::vector<int32_t>> applied; // the adapters that each context computes with
pthread_mutex_t applying = PTHREAD_MUTEX_INITIALIZER;    // protects `applied`

class Applying {
  public:
    Applying() { pthread_mutex_lock(&applying); }
    ~Applying() { pthread_mutex_unlock(&applying); }
};

// Removes the adapter from every context that uses it. Such a context must not read freed memory, nor take a new
// adapter at the same address for the old one.
void unset(int32_t id) {
    for (auto &[ctx, ids] : applied) {
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) continue;
        llama_synchronize(ctx);
        llama_set_adapters_lora(ctx, nullptr, 0, nullptr);
        ids.clear();
    }
}

} // namespace

void adapters_decode_alone() { is_alone = true; }

AdaptersHeld::AdaptersHeld() {
    if (is_alone) {
        pthread_rwlock_wrlock(&held.lock);
    } else {
        pthread_rwlock_rdlock(&held.lock);
    }
}

AdaptersHeld::~AdaptersHeld() { pthread_rwlock_unlock(&held.lock); }

int32_t adapters_apply(llama_context *ctx, const llamad_adapter_use *uses, int32_t n) {
    const AdaptersHeld lock;
    std::vector<llama_adapter_lora *> loras;
    std::vector<float> scales;
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < n; i++) {
        const auto adapter = adapters.find(uses[i].id);
        if (adapter == adapters.end()) return -1;
        loras.push_back(adapter->second);
        scales.push_back(uses[i].scale);
        ids.push_back(uses[i].id);
    }
    {
        const Applying one;
        applied[ctx] = std::move(ids);
    }
    return llama_set_adapters_lora(ctx, loras.data(), loras.size(), scales.data());
}

void adapters_forget(llama_context *ctx) {
    const Applying one;
    applied.erase(ctx);
}

extern "C" {

int32_t llamad_adapter_open(llama_model *model, const char *path, int32_t id) {
    const Changing lock;
    try {
        llama_adapter_lora *adapter = llama_adapter_lora_init(model, path);
        if (!adapter) return -1;
        adapters[id] = adapter;
        return 0;
    } catch (const std::exception &) {
        return -1;
    }
}

void llamad_adapter_close(int32_t id) {
    const Changing lock;
    const auto adapter = adapters.find(id);
    if (adapter == adapters.end()) return;
    unset(id);
    llama_adapter_lora_free(adapter->second);
    adapters.erase(adapter);
}

void llamad_adapters_forget(void) {
    const Changing lock;
    adapters.clear();
    applied.clear();
}
}
