#include "adapters.h"

#include <algorithm>
#include <exception>
#include <map>
#include <pthread.h>
#include <vector>

namespace {

// Decodes of two contexts may run at once; what changes the list goes before the next of them.
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
bool is_alone; // every decode holds it as a change does

class Changing {
  public:
    Changing() { pthread_rwlock_wrlock(&held.lock); }
    ~Changing() { pthread_rwlock_unlock(&held.lock); }
};

std::map<int32_t, llama_adapter_lora *> adapters;
std::map<llama_context *, std::vector<int32_t>> applied; // what each context computes with
pthread_mutex_t applying = PTHREAD_MUTEX_INITIALIZER;    // two contexts may apply theirs at once

class Applying {
  public:
    Applying() { pthread_mutex_lock(&applying); }
    ~Applying() { pthread_mutex_unlock(&applying); }
};

// A context that computes with it must not find it freed, nor take a new one at its address for the old.
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
    std::vector<llama_adapter_lora *> wanted;
    std::vector<float> scales;
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < n; i++) {
        const auto found = adapters.find(uses[i].id);
        if (found == adapters.end()) return -1;
        wanted.push_back(found->second);
        scales.push_back(uses[i].scale);
        ids.push_back(uses[i].id);
    }
    {
        const Applying one;
        applied[ctx] = std::move(ids);
    }
    return llama_set_adapters_lora(ctx, wanted.data(), wanted.size(), scales.data());
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
    const auto found = adapters.find(id);
    if (found == adapters.end()) return;
    unset(id);
    llama_adapter_lora_free(found->second);
    adapters.erase(found);
}

void llamad_adapters_forget(void) {
    const Changing lock;
    adapters.clear();
    applied.clear();
}
}
