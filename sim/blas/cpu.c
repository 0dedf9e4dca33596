/* The BLAS of the CPU: libopenblas.so.0, or what STRATA_SIM_CPU_BLAS names, with the interface cblas. */
#include "blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sim_blas_cpu_table sim_blas_cpu;

/* Written under `opening`, the reason before the flag; constant once opened. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool opened;
static char missing[300] = "the BLAS of the CPU was not opened";

static const struct cpu_entry {
    const char *symbol;
    size_t offset;
} cpu_entries[] = {
#define CPU_ENTRY(type, name, parameters) {"cblas_" #name, offsetof(sim_blas_cpu_table, name)},
    SIM_BLAS_CPU(CPU_ENTRY)
#undef CPU_ENTRY
};

static bool fill(void *library, const char *name)
{
    for (size_t i = 0; i < sizeof cpu_entries / sizeof cpu_entries[0]; i++) {
        void *symbol = dlsym(library, cpu_entries[i].symbol);
        if (!symbol) {
            snprintf(missing, sizeof missing, "%.120s lacks %s: it is no CPU BLAS with the interface cblas", name,
                     cpu_entries[i].symbol);
            return false;
        }
        memcpy((char *)&sim_blas_cpu + cpu_entries[i].offset, &symbol, sizeof symbol);
    }
    return true;
}

/* Work of the simulated driver runs one after the other; more threads would compete with the program's. */
static void limit_threads(void *library)
{
    void (*set_threads)(int);
    void *symbol = dlsym(library, "openblas_set_num_threads");
    const char *chosen = secure_getenv("OPENBLAS_NUM_THREADS");
    if (!symbol || (chosen && *chosen))
        return;
    memcpy(&set_threads, &symbol, sizeof symbol);
    set_threads(1);
}

static bool open_locked(void)
{
    const char *given = secure_getenv("STRATA_SIM_CPU_BLAS");
    const char *name = given && *given ? given : "libopenblas.so.0";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(
            missing, sizeof missing,
            "install OpenBLAS (package libopenblas0-pthread), with which the simulated driver's cuBLAS computes, or "
            "name a CPU BLAS in STRATA_SIM_CPU_BLAS: %.120s",
            dlerror());
        return false;
    }
    if (!fill(library, name)) {
        dlclose(library);
        return false;
    }
    limit_threads(library);
    return true;
}

bool sim_blas_cpu_open(void)
{
    if (atomic_load_explicit(&opened, memory_order_acquire))
        return true;
    pthread_mutex_lock(&opening);
    if (!atomic_load_explicit(&opened, memory_order_relaxed) && open_locked())
        atomic_store_explicit(&opened, true, memory_order_release);
    pthread_mutex_unlock(&opening);
    return atomic_load_explicit(&opened, memory_order_acquire);
}

const char *sim_blas_cpu_missing(void)
{
    return missing;
}
