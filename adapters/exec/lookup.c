/* dlsym and dlvsym, in front of the loader's.
 *
 * A name that is not hooked, and every RTLD_NEXT, goes to the loader by a tail call, so that the loader sees the
 * program's own return address: RTLD_NEXT means "behind the caller". A hooked name is looked up first, with the
 * program's handle; the hook is handed out only if that found something. A function of the driver that is neither
 * hooked nor known gets a stand-in that counts (uncovered.c). No lock and no host memory of this library. */
#define _GNU_SOURCE
#include "adapters/exec/hooks.h"
#include "adapters/exec/loader.h"
#include "adapters/exec/uncovered.h"

#include <dlfcn.h>

/* ---- the hooked functions ---- */

/* Returns NULL, and has the loader say so by dlerror, as a program expects that asks it: behind this library there is
 * no such function. */
static __attribute__((noinline, cold)) void *find_nothing(const char *name)
{
    (void)exec_loader_dlsym(RTLD_NEXT, name);
    return NULL;
}

/* Returns what a look-up of a hooked name hands out. If it found this library's own symbol, since the program searched
 * all libraries, there must be a real function, too; else NULL. */
static void *put_hook(exec_hook hook, const char *name, void *found)
{
    if (found && exec_is_own_code(found))
        return exec_hook_real(hook) ? found : find_nothing(name);
    return found && exec_hook_found(hook, found) ? exec_hook_function(hook) : found;
}

static void *stand_for(exec_hook hook, const char *name, void *found)
{
    return hook == EXEC_HOOK_COUNT ? exec_uncovered_if_driver(name, found) : put_hook(hook, name, found);
}

static __attribute__((noinline)) void *look_up_hooked(exec_hook hook, void *handle, const char *name)
{
    return stand_for(hook, name, exec_loader_dlsym_function()(handle, name));
}

/* Whether the program gets what the loader finds, without a hook or a stand-in. */
static inline bool is_untouched(exec_hook hook, void *handle, const char *name)
{
    return hook == EXEC_HOOK_COUNT && (handle == RTLD_NEXT || !exec_is_uncovered_name(name));
}

/* Returns the hook to be handed out for a name; EXEC_HOOK_COUNT: none, as always with RTLD_NEXT, for which the loader's
 * result stands. *nothing: the name is the driver's, and there is no driver. */
static inline exec_hook hook_for(void *handle, const char *name, bool *nothing)
{
    const exec_hook hook = exec_hook_find(name);
    *nothing = hook != EXEC_HOOK_COUNT && handle == RTLD_NEXT && !exec_hook_real(hook);
    return handle == RTLD_NEXT ? EXEC_HOOK_COUNT : hook;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    bool nothing;
    dlsym_function *real = exec_loader_dlsym_function();
    const exec_hook hook = hook_for(handle, name, &nothing);
    if (nothing)
        return find_nothing(name);
    if (is_untouched(hook, handle, name))
        return real(handle, name);
    return look_up_hooked(hook, handle, name);
}

static __attribute__((noinline)) void *look_up_version_hooked(exec_hook hook, void *handle, const char *name,
                                                              const char *version)
{
    return stand_for(hook, name, exec_loader_dlvsym_function()(handle, name, version));
}

__attribute__((visibility("default"))) void *dlvsym(void *handle, const char *name, const char *version)
{
    bool nothing;
    dlvsym_function *real = exec_loader_dlvsym_function();
    const exec_hook hook = hook_for(handle, name, &nothing);
    if (nothing)
        return find_nothing(name);
    if (is_untouched(hook, handle, name))
        return real(handle, name, version);
    return look_up_version_hooked(hook, handle, name, version);
}
