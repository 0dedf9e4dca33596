/* What PyTorch, CuPy and JAX say of their caches. Only functions of C are called, which only read. */
#include "adapters/exec/caches.h"

#include <stddef.h>

enum { MOST_DEVICES = 64 };

typedef void note_cache(const exec_cache *now);

/* Reads a number from nested dictionaries; the keys end with NULL. */
static int64_t read_number(exec_object *from, const char *const *keys)
{
    for (; from && *keys; keys++)
        from = exec_python_functions.item(from, *keys);
    return exec_object_number(from);
}

/* ---- PyTorch ---- */

/* False: the device has no cache, or CUDA is not in use. */
static bool ask_torch_device(exec_object *torch, int device, note_cache *note)
{
    static const char *const used[] = {"allocated_bytes", "all", "current", NULL};
    static const char *const used_peak[] = {"allocated_bytes", "all", "peak", NULL};
    static const char *const held[] = {"reserved_bytes", "all", "current", NULL};
    static const char *const held_peak[] = {"reserved_bytes", "all", "peak", NULL};
    exec_object *statistics = exec_python_functions.call_method(torch, "_cuda_memoryStats", "i", device);
    const bool known = statistics != NULL;
    exec_python_functions.forget_error();
    const exec_cache now = {.library = "PyTorch",
                            .device = device,
                            .keeps_peaks = true,
                            .held = read_number(statistics, held),
                            .used = read_number(statistics, used),
                            .held_peak = read_number(statistics, held_peak),
                            .used_peak = read_number(statistics, used_peak)};
    if (now.held_peak > 0)
        note(&now);
    exec_object_drop(statistics);
    return known;
}

static void ask_torch(note_cache *note)
{
    exec_object *torch = exec_object_module("torch._C");
    for (int device = 0; torch && device < MOST_DEVICES && ask_torch_device(torch, device, note); device++)
        ;
    exec_object_drop(torch);
}

/* ---- CuPy ---- */

static int64_t call_number(exec_object *of, const char *name)
{
    exec_object *answer = exec_object_call(of, name);
    const int64_t number = exec_object_number(answer);
    exec_object_drop(answer);
    return number;
}

/* Asks the pool that is in use, for the current device, if CuPy's allocator is a pool's method. */
static void ask_cupy(note_cache *note)
{
    exec_object *module = exec_object_module("cupy.cuda.memory");
    exec_object *allocator = exec_object_call(module, "get_allocator");
    exec_object *pool = exec_object_attribute(allocator, "__self__");
    const exec_cache now = {.library = "CuPy",
                            .device = EXEC_UNKNOWN,
                            .held = call_number(pool, "total_bytes"),
                            .used = call_number(pool, "used_bytes"),
                            .held_peak = EXEC_UNKNOWN,
                            .used_peak = EXEC_UNKNOWN};
    if (now.held > 0)
        note(&now);
    exec_object_drop(pool);
    exec_object_drop(allocator);
    exec_object_drop(module);
}

/* ---- JAX ---- */

static void ask_jax_device(exec_object *device, note_cache *note)
{
    static const char *const used[] = {"bytes_in_use", NULL}, *const used_peak[] = {"peak_bytes_in_use", NULL};
    static const char *const held[] = {"pool_bytes", NULL}, *const held_peak[] = {"peak_pool_bytes", NULL};
    exec_object *statistics = exec_object_call(device, "memory_stats"), *number = exec_object_attribute(device, "id");
    const exec_cache now = {.library = "JAX",
                            .device = (int)exec_object_number(number),
                            .keeps_peaks = true,
                            .held = read_number(statistics, held),
                            .used = read_number(statistics, used),
                            .held_peak = read_number(statistics, held_peak),
                            .used_peak = read_number(statistics, used_peak)};
    if (now.held > 0 || now.used > 0)
        note(&now);
    exec_object_drop(number);
    exec_object_drop(statistics);
}

/* Asks the backends that the program has started; none is started for this. */
static void ask_jax(note_cache *note)
{
    exec_object *bridge = exec_object_module("jax._src.xla_bridge"), *backend;
    exec_object *backends = exec_object_attribute(bridge, "_backends");
    exec_object *list = backends ? exec_python_functions.values(backends) : NULL;
    exec_python_functions.forget_error();
    for (ssize_t b = 0; (backend = exec_object_at(list, b)); b++) {
        exec_object *devices = exec_object_call(backend, "local_devices"), *device;
        for (ssize_t d = 0; (device = exec_object_at(devices, d)); d++) {
            ask_jax_device(device, note);
            exec_object_drop(device);
        }
        exec_object_drop(devices);
        exec_object_drop(backend);
    }
    exec_object_drop(list);
    exec_object_drop(backends);
    exec_object_drop(bridge);
}

void exec_caches_ask_libraries(note_cache *note)
{
    ask_torch(note);
    ask_cupy(note);
    ask_jax(note);
}
