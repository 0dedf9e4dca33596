/* What look-ups hand out. `lookups hooks` compares them with the table of hooks; `lookups names LIBRARY` looks into a
 * library whose names are like the driver's; `lookups quiet` looks up while host memory must not be asked for, `lookups
 * interrupted` in a signal's handler, while the same thread looks up: a lock of a hook would wait for itself. */
#include "driver_calls.h"

#include "adapters/exec/hooks.h"
#include "interrupted.h"

#include <link.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

static const char *object_of(void *function)
{
    Dl_info where;
    if (!function || !dladdr(function, &where) || !where.dli_fname)
        return "nothing";
    const char *slash = strrchr(where.dli_fname, '/');
    const char *name = slash ? slash + 1 : where.dli_fname;
    return strncmp(name, "libstrata-exec", 14) == 0 ? "hook" : strncmp(name, "libcuda", 7) == 0 ? "driver" : name;
}

static get_2 *find_get(void *library)
{
    get_2 *get_address;
    void *found = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&get_address, &found, sizeof found);
    return get_address;
}

static void *ask(get_2 *get_address, const char *name, int version, int per_thread)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    const cuuint64_t flags =
        per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    return get_address(name, &found, version, flags, &status) == CUDA_SUCCESS ? found : NULL;
}

static const exec_hook_row rows[] = {
#define ROW(symbol, base, version, per_thread) {#symbol, base, version, per_thread},
    EXEC_HOOKS(ROW)
#undef ROW
};

/* Both ways lead to the same function, which is the hook. The driver need not have each. */
static void compare_with_table(void)
{
    void *library = open_cuda();
    get_2 *get_address = find_get(library);
    size_t found = 0, wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const exec_hook_row *row = &rows[i];
        void *by_symbol = row->version ? dlsym(library, row->symbol) : NULL;
        if (!by_symbol)
            continue;
        void *by_name = ask(get_address, row->base, row->version, row->per_thread);
        found++;
        if (strcmp(object_of(by_symbol), "hook") != 0 || (by_name && by_name != by_symbol)) {
            printf("%s: %s and %s\n", row->symbol, object_of(by_symbol), object_of(by_name));
            wrong++;
        }
    }
    printf("%s hooks, %zu wrong\n", found > 50 ? "many" : "few", wrong);
    printf("no hook: %s\n", object_of(dlsym(library, "cuCtxGetCurrent")));
}

static void ask_for_itself(void)
{
    void *library = open_cuda();
    get_2 *again, *get_address = find_get(library);
    void *second = ask(get_address, "cuGetProcAddress", 12000, 0),
         *first = ask(get_address, "cuGetProcAddress", 11030, 0);
    memcpy(&again, &second, sizeof second);
    printf("itself: %s and %s, and what that finds: %s\n", object_of(first), object_of(second),
           object_of(ask(again, "cuMemAlloc", 12000, 0)));
}

/* ---- another library ---- */

static void look_into_another(const char *path)
{
    static const char *const names[] = {"cuSomething", "cuMemAllocate", "cudnnCreate", "cuTable"};
    void *other = dlopen(path, RTLD_NOW | RTLD_LOCAL), *cuda = open_cuda();
    void *(*own_address)(const char *), *found = other ? dlsym(other, "own_address") : NULL;
    if (!found) {
        printf("%s\n", dlerror());
        exit(3);
    }
    memcpy(&own_address, &found, sizeof found);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        printf("%s: %s\n", names[i], dlsym(other, names[i]) == own_address(names[i]) ? "its own" : "another");
    printf("the driver's in it: %s, it in the driver: %s\n", object_of(dlsym(other, "cuMemAlloc_v2")),
           object_of(dlsym(cuda, "cuSomething")));
}

/* ---- without host memory ---- */

static char arena[1 << 24];
static size_t used;
static int forbidden;

static void *take(size_t bytes)
{
    if (forbidden) {
        static const char text[] = "host memory was asked for in a look-up\n";
        const ssize_t written = write(STDOUT_FILENO, text, sizeof text - 1);
        _exit(written > 0 ? 9 : 10);
    }
    const size_t begin = (used + 63) & ~(size_t)63;
    used = begin + bytes;
    return used <= sizeof arena ? arena + begin : NULL;
}

#if defined QUIET
/* In front of the C library's, for the whole process. Nothing comes back. */
void *malloc(size_t bytes)
{
    return take(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return take(count * bytes);
}

void *realloc(void *before, size_t bytes)
{
    void *after = take(bytes);
    const size_t behind = before ? (size_t)(arena + sizeof arena - (char *)before) : 0;
    if (before && after)
        memmove(after, before, bytes < behind ? bytes : behind);
    return after;
}

void free(void *memory)
{
    (void)memory;
}
#endif

static void look_up_quietly(void)
{
    void *library = open_cuda(), *bare = dlsym(library, "cuGetProcAddress_v2"), *found[6];
    get_2 *get_address;
    memcpy(&get_address, &bare, sizeof bare);
    (void)take(0);
    forbidden = 1;
    found[0] = dlsym(library, "cuMemAlloc_v2");
    found[1] = dlsym(library, "cuMemFree_v2");
    found[2] = dlsym(library, "cuCtxGetCurrent");
    found[3] = dlsym(library, "cuStreamBeginRecaptureToGraph");
    found[4] = ask(get_address, "cuMemAllocAsync", 12000, 0);
    found[5] = ask(get_address, "cuMemcpyAsync", 12000, 1);
    forbidden = 0;
    for (size_t i = 0; i < 6; i++)
        printf("%s%s", i ? " " : "", object_of(found[i]));
    printf("\n");
}

/* ---- interrupted ---- */

static void *cuda;
static volatile sig_atomic_t interruptions, wrong;

static int look_up_some(void)
{
    static const char *const names[] = {"cuMemAlloc_v2", "cuStreamBeginRecaptureToGraph", "cuCtxGetCurrent"};
    int found = 0;
    for (int i = 0; i < 3; i++)
        found += dlsym(cuda, names[i]) != NULL;
    return found == 3;
}

/* Within the code of strata exec alone: a dlsym of the C library that interrupts another may wait for itself, when its
 * lock is taken and its owner not written yet. */
static void look_up_in_between(int number, siginfo_t *info, void *context)
{
    const uintptr_t at = interrupted_at(context);
    (void)number;
    (void)info;
    if (at < strata_code.from || at >= strata_code.to)
        return;
    interruptions++;
    wrong += !look_up_some();
}

static void look_up_and_be_interrupted(void)
{
    const struct sigaction action = {.sa_sigaction = look_up_in_between, .sa_flags = SA_SIGINFO};
    const struct itimerval often = {.it_interval = {.tv_usec = 50}, .it_value = {.tv_usec = 50}}, never = {0};
    cuda = open_cuda();
    dl_iterate_phdr(find_library, NULL);
    alarm(60); /* instead of a wait for ever */
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    while (interruptions < 20)
        wrong += !look_up_some();
    setitimer(ITIMER_PROF, &never, NULL);
    printf("interrupted, and %s\n", wrong ? "wrong" : "right");
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "hooks";
    (void)begin;
    if (strcmp(what, "hooks") == 0) {
        compare_with_table();
        ask_for_itself();
    } else if (strcmp(what, "interrupted") == 0) {
        look_up_and_be_interrupted();
    } else if (strcmp(what, "names") == 0) {
        look_into_another(count > 2 ? arguments[2] : "");
    } else {
        look_up_quietly();
    }
    return 0;
}
