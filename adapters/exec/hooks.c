/* The table of hooks, and the real functions behind them. */
#define _GNU_SOURCE
#include "adapters/exec/hooks.h"

#include "adapters/exec/loader.h"
#include "adapters/exec/settings.h"

#include <dlfcn.h>

const exec_hook_row exec_hook_rows[EXEC_HOOK_COUNT] = {
#define EXEC_HOOK_ROW(symbol, base, version, per_thread) {#symbol, base, version, per_thread},
    EXEC_HOOKS(EXEC_HOOK_ROW)
#undef EXEC_HOOK_ROW
};

_Atomic(void *) exec_hook_reals[EXEC_HOOK_COUNT];
static _Atomic(void *) hooks[EXEC_HOOK_COUNT]; /* set by whichever thread comes first, all to the same */

exec_hook exec_hook_first_of_base(const char *symbol)
{
    unsigned low = 0, high = EXEC_HOOK_COUNT;
    while (low < high) {
        const unsigned middle = low + (high - low) / 2;
        if (exec_compare_base(symbol, exec_hook_rows[middle].base) > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < EXEC_HOOK_COUNT && exec_compare_base(symbol, exec_hook_rows[low].base) == 0 ? (exec_hook)low
                                                                                             : EXEC_HOOK_COUNT;
}

exec_hook exec_hook_find(const char *symbol)
{
    if (!(symbol[0] == 'c' && symbol[1] == 'u') && !(symbol[0] == 'n' && symbol[1] == 'v'))
        return EXEC_HOOK_COUNT;
    for (exec_hook i = exec_hook_first_of_base(symbol); i < EXEC_HOOK_COUNT; i++) {
        if (exec_compare_base(symbol, exec_hook_rows[i].base) != 0)
            break;
        if (exec_is_same(exec_hook_rows[i].symbol, symbol))
            return exec_is_wanted() ? i : EXEC_HOOK_COUNT;
    }
    return EXEC_HOOK_COUNT;
}

void *exec_hook_function(exec_hook hook)
{
    void *function = atomic_load_explicit(&hooks[hook], memory_order_acquire);
    if (!function) {
        function = exec_own_symbol(exec_hook_rows[hook].symbol);
        atomic_store_explicit(&hooks[hook], function, memory_order_release);
    }
    return function;
}

/* Keeps the function's library from being unloaded: the hook goes on calling it. */
static void keep_loaded(const void *real)
{
    Dl_info where;
    if (dladdr(real, &where) && where.dli_fname)
        (void)dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

bool exec_hook_found(exec_hook hook, void *real)
{
    void *first = NULL;
    if (exec_is_own_code(real)) /* a driver that binds its own names outside of itself leads here: it has another */
        return exec_hook_real(hook) != NULL;
    if (!atomic_compare_exchange_strong(&exec_hook_reals[hook], &first, real))
        return first == real;
    keep_loaded(real);
    return true;
}

/* Looks the symbol up behind this library, then in a loaded driver: RTLD_NEXT misses one that was loaded with
 * RTLD_LOCAL. NULL: it is not found. */
static void *look_behind(exec_hook hook)
{
    const char *symbol = exec_hook_rows[hook].symbol;
    void *real = exec_loader_dlsym(RTLD_NEXT, symbol);
    if (real)
        return real;
    const char *library = exec_hook_rows[hook].version ? "libcuda.so.1" : "libnvidia-ml.so.1";
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    real = exec_loader_dlsym(handle, symbol);
    dlclose(handle);
    return real;
}

void *exec_hook_real_slow(exec_hook hook)
{
    void *real = look_behind(hook);
    if (real)
        exec_hook_found(hook, real);
    return real;
}
