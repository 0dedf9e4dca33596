/* Opens the driver: chooses a library, looks up every entry point with cuGetProcAddress, by name and version. */
#define _GNU_SOURCE
#include "driver/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

strata_entry_table strata_cu;
strata_region_calls strata_driver_regions;
_Atomic int strata_driver_state_word;

/* Serializes opening and choosing. Outermost lock. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* Guarded by `opening` until the state is OPEN, constant afterwards. */
static struct {
    char choice[PATH_MAX];
    char library[PATH_MAX];
    bool fixed; /* the environment's choice does not count */
    bool simulated;
    int version;
    int device_count;
} opened;

/* Threads that hold `opening` or soon will: a child forked meanwhile may find it locked forever. */
static _Atomic unsigned busy;
static pthread_once_t watched = PTHREAD_ONCE_INIT;
static bool watching; /* written once */

typedef struct entry_name {
    const char *name;
    size_t offset; /* in strata_entry_table */
    int version;
    bool required;
} entry_name;

#define REQUIRED true
#define OPTIONAL false
static const entry_name entry_names[] = {
#define ENTRY_NAME(need, name, version, parameters, arguments) \
    {"cu" #name, offsetof(strata_entry_table, name), version, need},
    STRATA_ENTRY_POINTS(ENTRY_NAME)
#undef ENTRY_NAME
};
#undef REQUIRED
#undef OPTIONAL

static void in_forked_child(void)
{
    int state = atomic_load_explicit(&strata_driver_state_word, memory_order_relaxed);
    if (state != STRATA_DRIVER_CLOSED || atomic_load(&busy))
        atomic_store_explicit(&strata_driver_state_word, STRATA_DRIVER_FORKED, memory_order_release);
}

static void watch_forks(void)
{
    watching = pthread_atfork(NULL, NULL, in_forked_child) == 0;
}

static void lock_opening(void)
{
    pthread_once(&watched, watch_forks);
    atomic_fetch_add(&busy, 1);
    pthread_mutex_lock(&opening);
}

static void unlock_opening(void)
{
    pthread_mutex_unlock(&opening);
    atomic_fetch_sub(&busy, 1);
}

void strata_driver_set_shut_down(void)
{
    int open = STRATA_DRIVER_OPEN;
    while ((open == STRATA_DRIVER_OPEN || open == STRATA_DRIVER_RESET) &&
           !atomic_compare_exchange_weak(&strata_driver_state_word, &open, STRATA_DRIVER_SHUT_DOWN))
        ;
}

void strata_driver_set_reset(void)
{
    int open = STRATA_DRIVER_OPEN;
    atomic_compare_exchange_strong(&strata_driver_state_word, &open, STRATA_DRIVER_RESET);
}

static void register_shut_down(void)
{
    (void)atexit(strata_driver_set_shut_down);
}

void strata_driver_watch_exit(void)
{
    static pthread_once_t registered = PTHREAD_ONCE_INIT;
    pthread_once(&registered, register_shut_down);
}

static void set_failure(strata_driver_failure *failure, CUresult code, const char *call, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void set_failure(strata_driver_failure *failure, CUresult code, const char *call, const char *format, ...)
{
    va_list arguments;
    failure->code = code;
    failure->call = call;
    failure->lacks_descriptors = false;
    va_start(arguments, format);
    vsnprintf(failure->message, sizeof failure->message, format, arguments);
    va_end(arguments);
}

static void set_forked(strata_driver_failure *failure)
{
    set_failure(
        failure, CUDA_SUCCESS, NULL,
        "this process was forked after the driver had started; CUDA does not survive fork(), use exec or spawn");
}

/* POSIX guarantees this for dlsym; ISO C has no syntax for it. */
static void store_entry(void *field, void *symbol)
{
    memcpy(field, &symbol, sizeof symbol);
}

static bool fill_table(void *library, strata_entry_table *table, strata_driver_failure *failure)
{
    PFN_cuGetProcAddress_v12000 get = NULL;
    store_entry(&get, dlsym(library, "cuGetProcAddress_v2"));
    if (!get) {
        set_failure(failure, CUDA_SUCCESS, NULL,
                    "the driver library has no cuGetProcAddress_v2; Strata needs a driver for CUDA 12.0 or later");
        return false;
    }
    for (size_t i = 0; i < sizeof entry_names / sizeof entry_names[0]; i++) {
        const entry_name *entry = &entry_names[i];
        void *symbol = NULL;
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        CUresult result = get(entry->name, &symbol, entry->version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
        if (result != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS)
            symbol = NULL;
        if (!symbol && entry->required) {
            set_failure(failure, result, "cuGetProcAddress",
                        "the driver lacks %s of CUDA %d.%d; a newer driver is needed", entry->name,
                        entry->version / 1000, entry->version % 1000 / 10);
            return false;
        }
        store_entry((char *)table + entry->offset, symbol);
    }
    return true;
}

static void find_region_calls(void *library)
{
    strata_region_calls found = {0};
    store_entry(&found.begin, dlsym(library, "strata_driver_region_begin"));
    store_entry(&found.end, dlsym(library, "strata_driver_region_end"));
    strata_driver_regions = found.begin && found.end ? found : (strata_region_calls){0};
}

/* ---- a shortage of file descriptors ---- */

/* As long as fewer are left, a failure counts as a shortage. The loader opens one file at a time. cuInit opens those of
 * the driver and of each GPU at once, and has closed them again when it fails. */
enum { LOADER_DESCRIPTORS = 4, DRIVER_DESCRIPTORS = 32 };

/* Counts the descriptors that can be opened, up to `most`. Returns `most` also if opening fails for another reason than
 * a shortage. */
static unsigned count_free_descriptors(unsigned most)
{
    int taken[DRIVER_DESCRIPTORS];
    unsigned count = 0;
    while (count < most && (taken[count] = open("/", O_PATH | O_CLOEXEC)) >= 0)
        count++;
    const bool short_of = count < most && (errno == EMFILE || errno == ENFILE);
    for (unsigned i = 0; i < count; i++)
        close(taken[i]);
    return short_of ? count : most;
}

/* Looks for a shortage of descriptors after a failure: neither the loader nor the driver says it clearly. The shortage
 * stands first in the message, whose end may be cut. */
static void look_for_shortage(strata_driver_failure *failure, unsigned needed)
{
    char reason[sizeof failure->message], left[64] = "no file descriptor is left";
    const unsigned count = count_free_descriptors(needed);
    if (count == needed)
        return;
    if (count)
        snprintf(left, sizeof left, "only %u file descriptor%s left", count, count == 1 ? " is" : "s are");
    memcpy(reason, failure->message, sizeof reason);
    snprintf(failure->message, sizeof failure->message, "%s; close some, or raise the limit (ulimit -n). %.290s", left,
             reason);
    failure->lacks_descriptors = true;
}

/* Opens a library and initializes its driver; NULL with the reason. */
static void *try_library(const char *path, strata_entry_table *table, strata_driver_failure *failure)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        set_failure(failure, CUDA_SUCCESS, NULL, "%s", dlerror());
        look_for_shortage(failure, LOADER_DESCRIPTORS);
        return NULL;
    }
    if (!fill_table(library, table, failure))
        goto refuse;
    CUresult result = table->Init(0);
    if (result != CUDA_SUCCESS) {
        const char *name = NULL, *text = NULL;
        table->GetErrorName(result, &name);
        table->GetErrorString(result, &text);
        set_failure(failure, result, "cuInit", "%.120s: cuInit returned %s (%s)", path, name ? name : "unknown error",
                    text ? text : "no description");
        look_for_shortage(failure, DRIVER_DESCRIPTORS);
        goto refuse;
    }
    if ((result = table->DriverGetVersion(&opened.version)) != CUDA_SUCCESS ||
        (result = table->DeviceGetCount(&opened.device_count)) != CUDA_SUCCESS) {
        set_failure(failure, result, "cuDeviceGetCount", "%s: reading the driver's version and devices failed", path);
        goto refuse;
    }
    return library;
refuse:
    dlclose(library);
    return NULL;
}

/* Current folders, "" if unknown: a relative path means the one in which it was given. A program may go to another
 * folder before it opens the driver, and that folder may be anyone's. */
static char start_folder[PATH_MAX];  /* when this code was loaded; written once, by the constructor */
static char choice_folder[PATH_MAX]; /* when the program chose; guarded by `opening` */

static void note_folder(char to[PATH_MAX])
{
    if (!getcwd(to, PATH_MAX) || *to != '/')
        *to = '\0';
}

static __attribute__((constructor)) void note_start_folder(void)
{
    note_folder(start_folder);
}

/* False if the path is too long, or relative to an unknown folder. */
static bool make_absolute(const char *path, const char *folder, char to[PATH_MAX])
{
    if (*path != '/' && !*folder)
        return false;
    int length = *path == '/' ? snprintf(to, PATH_MAX, "%s", path) : snprintf(to, PATH_MAX, "%s/%s", folder, path);
    return length >= 0 && length < PATH_MAX;
}

bool strata_driver_path_from_start(const char *path, char *to)
{
    return make_absolute(path, start_folder, to);
}

bool strata_driver_path_from_here(const char *path, char *to)
{
    char folder[PATH_MAX];
    note_folder(folder);
    return make_absolute(path, folder, to);
}

/* The path of the shared library, or of the program that links this code. The loader knows the latter only by the first
 * word of its command line. A set-uid program may be reached by a hard link in a folder of the user: it has no file. */
static bool own_file(char path[PATH_MAX])
{
    Dl_info symbol;
    struct link_map *object = NULL;
    if (dladdr1((void *)&strata_driver_state_word, &symbol, (void **)&object, RTLD_DL_LINKMAP) && object &&
        *object->l_name)
        return make_absolute(object->l_name, start_folder, path);
    ssize_t length = getauxval(AT_SECURE) ? -1 : readlink("/proc/self/exe", path, PATH_MAX);
    if (length < 0 || (size_t)length >= PATH_MAX)
        return false;
    path[length] = '\0';
    return true;
}

static void add_words(strata_driver_failure *failure, const char *words)
{
    size_t used = strlen(failure->message);
    snprintf(failure->message + used, sizeof failure->message - used, "%s", words);
}

/* A library by its path, or by a name without a slash, which the loader looks for. */
static void *try_given(const char *given, const char *folder, strata_entry_table *table, strata_driver_failure *failure)
{
    if (!strchr(given, '/')) {
        snprintf(opened.library, sizeof opened.library, "%s", given);
    } else if (!make_absolute(given, folder, opened.library)) {
        set_failure(failure, CUDA_SUCCESS, NULL, "%.120s: the path is too long, or its folder is unknown", given);
        return NULL;
    }
    return try_library(opened.library, table, failure);
}

/* Opens the simulated driver: $STRATA_SIM_LIBRARY, else beside this library, else on the loader's path. */
static void *try_simulated(strata_entry_table *table, strata_driver_failure *failure)
{
    static const char name[] = "libstrata-sim.so.0";
    const char *given = secure_getenv("STRATA_SIM_LIBRARY");
    if (given && *given) {
        void *library = try_given(given, start_folder, table, failure);
        if (!library && !failure->call)
            add_words(failure, "; set by STRATA_SIM_LIBRARY");
        return library;
    }
    char self[PATH_MAX];
    const char *slash = own_file(self) ? strrchr(self, '/') : NULL;
    if (slash) {
        int directory = (int)(slash - self) + 1;
        static const char *const beside[] = {"", "../lib/", "../libexec/strata/"};
        for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
            int length = snprintf(opened.library, sizeof opened.library, "%.*s%s%s", directory, self, beside[i], name);
            if (length < 0 || (size_t)length >= sizeof opened.library)
                continue;
            void *library = try_library(opened.library, table, failure);
            if (library || failure->call)
                return library;
        }
    }
    snprintf(opened.library, sizeof opened.library, "%s", name);
    void *library = try_library(name, table, failure);
    if (!library && !failure->call)
        add_words(failure, "; STRATA_SIM_LIBRARY sets the path of the simulated driver");
    return library;
}

static void *try_cuda(strata_entry_table *table, strata_driver_failure *failure)
{
    snprintf(opened.library, sizeof opened.library, "libcuda.so.1");
    return try_library(opened.library, table, failure);
}

/* Whether the program had started the driver, and forked, before Strata was there: only then does cuInit return this
 * (tests/answers/h200.txt, "fork.child.init"). */
static bool was_started_before_fork(const strata_driver_failure *failure)
{
    return failure->code == CUDA_ERROR_NOT_INITIALIZED && strcmp(failure->call, "cuInit") == 0;
}

static void point_to_simulation(strata_driver_failure *failure)
{
    add_words(failure,
              ". Without a GPU, set STRATA_DRIVER=sim for the simulated driver, or auto for the GPU's if there is one");
}

static bool is_choice(const char *choice)
{
    return strcmp(choice, "cuda") == 0 || strcmp(choice, "sim") == 0 || strcmp(choice, "auto") == 0 ||
           strchr(choice, '/');
}

static void *try_choice(const char *choice, const char *folder, strata_entry_table *table,
                        strata_driver_failure *failure)
{
    if (strcmp(choice, "cuda") == 0) {
        void *library = try_cuda(table, failure);
        if (!library && !failure->lacks_descriptors && !was_started_before_fork(failure))
            point_to_simulation(failure);
        return library;
    }
    if (strcmp(choice, "sim") == 0)
        return try_simulated(table, failure);
    if (strcmp(choice, "auto") == 0) {
        void *library = try_cuda(table, failure);
        if ((library && opened.device_count > 0) || was_started_before_fork(failure))
            return library;
        if (library) {
            set_failure(failure, CUDA_SUCCESS, NULL, "%s has no device", opened.library);
            look_for_shortage(failure, DRIVER_DESCRIPTORS);
            dlclose(library);
        }
        if (failure->lacks_descriptors)
            return NULL; /* there may be a GPU */
        return try_simulated(table, failure);
    }
    if (!is_choice(choice)) {
        set_failure(failure, CUDA_SUCCESS, NULL,
                    "driver choice \"%.120s\": expected cuda, sim, auto, or the path of a library", choice);
        return NULL;
    }
    return try_given(choice, folder, table, failure);
}

static bool open_locked(strata_driver_failure *failure)
{
    const char *environment = opened.fixed ? NULL : secure_getenv("STRATA_DRIVER");
    if (environment && *environment) {
        if (strlen(environment) >= sizeof opened.choice) {
            set_failure(failure, CUDA_SUCCESS, NULL, "STRATA_DRIVER is longer than a path can be");
            return false;
        }
        strcpy(opened.choice, environment);
    } else if (!opened.choice[0]) {
        strcpy(opened.choice, "cuda");
    }
    if (!watching) {
        set_failure(failure, CUDA_SUCCESS, NULL, "out of host memory while registering fork handlers");
        return false;
    }
    strata_entry_table table = {0};
    void *library =
        try_choice(opened.choice, environment && *environment ? start_folder : choice_folder, &table, failure);
    if (!library && was_started_before_fork(failure)) {
        atomic_store_explicit(&strata_driver_state_word, STRATA_DRIVER_FORKED, memory_order_release);
        set_forked(failure);
    }
    if (!library)
        return false;
    opened.simulated = dlsym(library, "strata_sim_get_accounts") != NULL;
    strata_cu = table;
    find_region_calls(library);
    if (strata_calls_wanted())
        strata_calls_wrap(&table, &strata_cu);
    atomic_store_explicit(&strata_driver_state_word, STRATA_DRIVER_OPEN, memory_order_release);
    strata_driver_watch_exit();
    return true;
}

bool strata_driver_load(strata_driver_failure *failure)
{
    *failure = (strata_driver_failure){0};
    strata_driver_state state = strata_driver_state_now();
    if (state == STRATA_DRIVER_OPEN || state == STRATA_DRIVER_RESET)
        return true;
    if (state == STRATA_DRIVER_SHUT_DOWN) {
        set_failure(failure, CUDA_SUCCESS, NULL, "the CUDA driver has shut down: the process is exiting");
        return false;
    }
    if (state == STRATA_DRIVER_FORKED) {
        set_forked(failure);
        return false;
    }
    lock_opening();
    bool open = strata_driver_is_open() || open_locked(failure);
    unlock_opening();
    return open;
}

bool strata_driver_accepts(const char *choice)
{
    return is_choice(choice) && strlen(choice) < sizeof opened.choice;
}

static bool set_choice(const char *choice, bool fixed)
{
    bool chosen = false;
    lock_opening();
    if (strata_driver_state_now() == STRATA_DRIVER_CLOSED) {
        strcpy(opened.choice, choice);
        opened.fixed = fixed;
        note_folder(choice_folder);
        chosen = true;
    } else if (strcmp(choice, opened.choice) == 0) {
        chosen = true;
    }
    unlock_opening();
    return chosen;
}

bool strata_driver_set_choice(const char *choice)
{
    return set_choice(choice, false);
}

bool strata_driver_fix_choice(const char *path)
{
    return strata_driver_accepts(path) && set_choice(path, true);
}

bool strata_driver_enable_counting(void)
{
    lock_opening();
    if (strata_driver_state_now() == STRATA_DRIVER_CLOSED)
        strata_calls_want();
    const bool counted = strata_calls_wanted();
    unlock_opening();
    return counted;
}

void strata_driver_describe(strata_driver_facts *facts)
{
    *facts = (strata_driver_facts){0};
    if (strata_driver_state_now() == STRATA_DRIVER_CLOSED)
        return;
    *facts = (strata_driver_facts){
        .choice = opened.choice,
        .library = opened.library,
        .simulated = opened.simulated,
        .version = opened.version,
        .device_count = opened.device_count,
    };
}

const char *strata_driver_error_name(CUresult result)
{
    const char *name = NULL;
    if (strata_driver_state_now() == STRATA_DRIVER_CLOSED || strata_cu.GetErrorName(result, &name) != CUDA_SUCCESS ||
        !name)
        return "unknown CUDA error";
    return name;
}
