/* Opens cuBLAS: chooses a library by STRATA_BLAS, the driver's kind and its version, and looks up the entry points. */
#define _GNU_SOURCE
#include "driver/blas.h"

#include "driver/driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Serializes opening. No lock is taken inside it but the loader's. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* Written under `opening`, before `opened` is set; constant afterwards. */
static strata_blas_library library;
static char library_path[PATH_MAX];

/* NULL, then &library; any thread, release and acquire. */
static _Atomic(const strata_blas_library *) opened;

static const struct entry_name {
    const char *symbol;
    size_t offset; /* in strata_blas_table */
} entry_names[] = {
#define ENTRY_NAME(name, symbol, parameters) {symbol, offsetof(strata_blas_table, name)},
    STRATA_BLAS_ENTRY_POINTS(ENTRY_NAME)
#undef ENTRY_NAME
        {"cublasGetStatusName", offsetof(strata_blas_table, status_name)},
    {"cublasGetStatusString", offsetof(strata_blas_table, status_text)},
};

static void say(strata_blas_failure *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(strata_blas_failure *failure, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->message, sizeof failure->message, format, arguments);
    va_end(arguments);
}

/* dlsym also finds the functions of cublasLt, which cuBLAS is linked with. */
static bool fill_table(void *object, const char *path, strata_blas_failure *failure)
{
    for (size_t i = 0; i < sizeof entry_names / sizeof entry_names[0]; i++) {
        void *symbol = dlsym(object, entry_names[i].symbol);
        if (!symbol) {
            say(failure, "%.150s lacks %s; Strata needs cuBLAS of CUDA 12 or 13", path, entry_names[i].symbol);
            return false;
        }
        memcpy((char *)&library.call + entry_names[i].offset, &symbol, sizeof symbol);
    }
    return true;
}

static bool read_version(const char *path, strata_blas_failure *failure)
{
    int part[3] = {0};
    for (int i = 0; i < 3; i++)
        if (library.call.get_property(STRATA_LIBRARY_MAJOR_VERSION + i, &part[i]) != STRATA_CUBLAS_SUCCESS) {
            say(failure, "%.150s does not tell its version (cublasGetProperty)", path);
            return false;
        }
    snprintf(library.version, sizeof library.version, "%d.%d.%d", part[0], part[1], part[2]);
    if (part[0] >= 12)
        return true;
    say(failure, "%.150s is cuBLAS %s; Strata needs 12 or 13", path, library.version);
    return false;
}

/* False with the reason; nothing stays open. */
static bool try_library(const char *path, strata_blas_failure *failure)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        say(failure, "%s", dlerror());
        return false;
    }
    if (!fill_table(object, path, failure) || !read_version(path, failure)) {
        dlclose(object);
        return false;
    }
    snprintf(library_path, sizeof library_path, "%s", path);
    library.path = library_path;
    return true;
}

static void add_words(strata_blas_failure *failure, const char *words)
{
    const size_t used = strlen(failure->message);
    snprintf(failure->message + used, sizeof failure->message - used, "%s", words);
}

/* Opens the stand-in: beside the simulated driver's library, or on the loader's path if that was found there. */
static bool try_stand_in(const char *driver, strata_blas_failure *failure)
{
    const char *slash = strrchr(driver, '/');
    char path[PATH_MAX];
    const int length =
        snprintf(path, sizeof path, "%.*slibstrata-sim-blas.so.0", slash ? (int)(slash - driver) + 1 : 0, driver);
    if (length < 0 || (size_t)length >= sizeof path) {
        say(failure, "the path of the simulated driver is too long");
        return false;
    }
    if (try_library(path, failure))
        return true;
    add_words(failure, "; install it beside the simulated driver, or name it in STRATA_BLAS");
    return false;
}

static bool try_cublas(int driver_version, strata_blas_failure *failure)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    const int first = driver_version < 13000; /* cuBLAS 13 needs a driver of its CUDA version */
    if (try_library(names[first], failure))
        return true;
    strata_blas_failure second;
    if (try_library(names[!first], &second))
        return true;
    add_words(failure, "; ");
    add_words(failure, second.message);
    add_words(failure, "; install cuBLAS of CUDA 12 or 13 (packages libcublas-13-0, nvidia-cublas), or name its "
                       "library in STRATA_BLAS");
    return false;
}

static bool try_given(const char *given, strata_blas_failure *failure)
{
    char path[PATH_MAX];
    if (!strchr(given, '/')) {
        say(failure, "STRATA_BLAS is \"%.120s\": expected auto, or the path of a library, with a '/'", given);
        return false;
    }
    if (!strata_driver_path_from_start(given, path)) {
        say(failure, "STRATA_BLAS is \"%.120s\": the path is too long, or its folder is unknown", given);
        return false;
    }
    if (try_library(path, failure))
        return true;
    add_words(failure, "; set by STRATA_BLAS");
    return false;
}

static bool open_locked(strata_blas_failure *failure)
{
    const char *given = secure_getenv("STRATA_BLAS");
    if (given && *given && strcmp(given, "auto") != 0)
        return try_given(given, failure);
    strata_driver_facts driver;
    strata_driver_describe(&driver);
    if (!driver.library) {
        say(failure, "the driver is not open");
        return false;
    }
    return driver.simulated ? try_stand_in(driver.library, failure) : try_cublas(driver.version, failure);
}

const strata_blas_library *strata_blas_library_open(strata_blas_failure *failure)
{
    failure->message[0] = '\0';
    const strata_blas_library *found = atomic_load_explicit(&opened, memory_order_acquire);
    if (found)
        return found;
    pthread_mutex_lock(&opening);
    if (!atomic_load_explicit(&opened, memory_order_relaxed) && open_locked(failure))
        atomic_store_explicit(&opened, &library, memory_order_release);
    pthread_mutex_unlock(&opening);
    return atomic_load_explicit(&opened, memory_order_acquire);
}
