/* Sets of handles by name, and the kinds that can be opened. */
#include <strata/libraries.h>

#include "core/base/driver_state.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "core/base/options.h"
#include "runtime/runtime.h"

#include <string.h>

/* PTDS programs see macros of these names. */
#undef strata_libraries_open
#undef strata_blas_create

enum { LONGEST_NAME = 63, LONGEST_VERSION = 63 };

/* A registered kind; constant, never freed. */
typedef struct known_kind {
    struct known_kind *next;
    strata_library_kind kind;
    char name[LONGEST_NAME + 1];
} known_kind;

static strata_lock kinds_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_LIBRARY_KINDS);
static known_kind *kinds; /* guarded by kinds_lock; entries are only added */

/* A handle of a set; constant once it is in the list. */
typedef struct entry {
    struct entry *before; /* the one added before it */
    char name[LONGEST_NAME + 1];
    char version[LONGEST_VERSION + 1];
    void *handle;
    bool is_blas; /* destroyed by Strata, with a status */
    void (*destroy)(void *handle, void *data);
    void *data;
} entry;

struct strata_libraries {
    strata_runtime *runtime; /* constant */
    strata_lock lock;
    entry *last; /* guarded by the lock; entries are only added */
    size_t count;
};

/* ---- names ---- */

static bool is_in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static bool is_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!is_in_name(name[i]))
            return false;
    return length && length <= LONGEST_NAME;
}

static strata_status check_name(const char *name, size_t length)
{
    if (name && is_name(name, length))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "library name \"%.*s\": expected up to %d letters, digits, '_' and '-'",
                       (int)(length < 99 ? length : 99), name ? name : "", LONGEST_NAME);
}

static bool same_name(const char *kept, const char *name, size_t length)
{
    return strncmp(kept, name, length) == 0 && !kept[length];
}

static size_t length_of(const char *text)
{
    return text ? strlen(text) : 0;
}

/* ---- kinds ---- */

/* The registered kind of a name; NULL if there is none, or for blas. */
static const known_kind *find_kind(const char *name, size_t length)
{
    strata_lock_take(&kinds_lock);
    const known_kind *kind = kinds;
    while (kind && !same_name(kind->name, name, length))
        kind = kind->next;
    strata_lock_release(&kinds_lock);
    return kind;
}

/* Adds a kind; false if there is one of that name. */
static bool add_kind(known_kind *made)
{
    strata_lock_take(&kinds_lock);
    const known_kind *kind = kinds;
    while (kind && strcmp(kind->name, made->name) != 0)
        kind = kind->next;
    if (!kind) {
        made->next = kinds;
        kinds = made;
    }
    strata_lock_release(&kinds_lock);
    return !kind;
}

strata_status strata_library_register(const strata_library_kind *given)
{
    strata_library_kind kind;
    if (!given)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_library_register: kind is NULL");
    strata_status status = strata_check_not_forked();
    if (status == STRATA_SUCCESS)
        status = strata_options_read(&kind, sizeof kind, given, "strata_library_kind");
    if (status == STRATA_SUCCESS)
        status = check_name(kind.name, length_of(kind.name));
    if (status == STRATA_SUCCESS && !kind.create)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "library \"%s\" has no create callback", kind.name);
    if (status != STRATA_SUCCESS)
        return status;
    known_kind *made = strata_host_zalloc(sizeof *made);
    if (!made)
        return strata_fail_host_memory("a kind of library");
    memcpy(made->name, kind.name, strlen(kind.name));
    made->kind = kind;
    made->kind.name = made->name;
    if (strcmp(made->name, "blas") != 0 && add_kind(made))
        return STRATA_SUCCESS;
    strata_host_free(made);
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "there is a library \"%s\" already; register it once, by a name of "
                       "its own",
                       kind.name);
}

/* ---- sets ---- */

static entry *find_entry(strata_libraries *libraries, const char *name, size_t length)
{
    strata_lock_take(&libraries->lock);
    entry *one = libraries->last;
    while (one && !same_name(one->name, name, length))
        one = one->before;
    strata_lock_release(&libraries->lock);
    return one;
}

static strata_status refuse_twice(const char *name, size_t length)
{
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "the set has a library \"%.*s\" already", (int)length, name);
}

/* Takes the entry over, unless another thread has added its name: then false. */
static bool add_entry(strata_libraries *libraries, entry *made)
{
    strata_lock_take(&libraries->lock);
    const entry *one = libraries->last;
    while (one && strcmp(one->name, made->name) != 0)
        one = one->before;
    if (!one) {
        made->before = libraries->last;
        libraries->last = made;
        libraries->count++;
    }
    strata_lock_release(&libraries->lock);
    return !one;
}

static strata_status create_blas(strata_libraries *libraries, CUstream stream, entry *made)
{
    strata_blas *blas;
    strata_blas_info info;
    strata_status status = strata_blas_create(libraries->runtime, stream, NULL, &blas);
    if (status != STRATA_SUCCESS)
        return status;
    made->handle = blas;
    made->is_blas = true;
    status = strata_blas_get_info(blas, &info);
    strncpy(made->version, info.version, LONGEST_VERSION);
    return status;
}

static strata_status create_entry(strata_libraries *libraries, CUstream stream, entry *made)
{
    if (strcmp(made->name, "blas") == 0)
        return create_blas(libraries, stream, made);
    const known_kind *known = find_kind(made->name, strlen(made->name));
    if (!known)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "there is no library \"%s\"; register it (strata_library_register), or take blas",
                           made->name);
    made->destroy = known->kind.destroy;
    made->data = known->kind.data;
    return known->kind.create(libraries->runtime, stream, known->kind.data, &made->handle, made->version);
}

static strata_status open_one(strata_libraries *libraries, CUstream stream, const char *name, size_t length)
{
    strata_status status = check_name(name, length);
    if (status == STRATA_SUCCESS && find_entry(libraries, name, length))
        status = refuse_twice(name, length);
    entry *made = status == STRATA_SUCCESS ? strata_host_zalloc(sizeof *made) : NULL;
    if (!made)
        return status == STRATA_SUCCESS ? strata_fail_host_memory("a library's handle") : status;
    memcpy(made->name, name, length);
    status = create_entry(libraries, stream, made);
    made->version[LONGEST_VERSION] = '\0';
    if (status == STRATA_SUCCESS)
        add_entry(libraries, made);
    else
        strata_host_free(made);
    return status;
}

static strata_status open_all(strata_libraries *libraries, CUstream stream, const char *names)
{
    const char *at = names + strspn(names, " ");
    if (!*at)
        return STRATA_SUCCESS;
    for (;; at++) {
        at += strspn(at, " ");
        const size_t length = strcspn(at, ", ");
        const strata_status status = open_one(libraries, stream, at, length);
        at += length;
        at += strspn(at, " ");
        if (status != STRATA_SUCCESS || !*at)
            return status;
        if (*at != ',')
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "list of libraries \"%.99s\": expected ',' at \"%.20s\"",
                               names, at);
    }
}

strata_status strata_libraries_open(strata_runtime *runtime, CUstream stream, const char *names, strata_libraries **out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_libraries_open: out is NULL");
    *out = NULL;
    strata_status status = strata_check_runtime_now(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    strata_libraries *libraries = strata_host_zalloc(sizeof *libraries);
    if (!libraries)
        return strata_fail_host_memory("a set of libraries");
    libraries->runtime = runtime;
    strata_lock_init(&libraries->lock, STRATA_RANK_LIBRARIES);
    status = open_all(libraries, stream, names ? names : "blas");
    if (status == STRATA_SUCCESS) {
        *out = libraries;
        return STRATA_SUCCESS;
    }
    strata_error_suppress_begin();
    strata_libraries_close(libraries);
    strata_error_suppress_end(false);
    return status;
}

strata_status strata_libraries_add(strata_libraries *libraries, const char *name, const char *version, void *handle,
                                   void (*destroy)(void *handle, void *data), void *data)
{
    const size_t length = length_of(name);
    if (!libraries || !handle)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_libraries_add: libraries or handle is NULL");
    strata_status status = strata_check_not_forked();
    if (status == STRATA_SUCCESS)
        status = check_name(name, length);
    if (status != STRATA_SUCCESS)
        return status;
    entry *made = strata_host_zalloc(sizeof *made);
    if (!made)
        return strata_fail_host_memory("a library's handle");
    memcpy(made->name, name, length);
    strncpy(made->version, version ? version : "", LONGEST_VERSION);
    made->handle = handle;
    made->destroy = destroy;
    made->data = data;
    if (add_entry(libraries, made))
        return STRATA_SUCCESS;
    strata_host_free(made);
    return refuse_twice(name, length);
}

/* ---- looking ---- */

size_t strata_libraries_count(strata_libraries *libraries)
{
    if (!libraries || strata_driver_state_now() == STRATA_DRIVER_FORKED)
        return 0;
    strata_lock_take(&libraries->lock);
    const size_t count = libraries->count;
    strata_lock_release(&libraries->lock);
    return count;
}

strata_status strata_libraries_at(strata_libraries *libraries, size_t index, strata_library *out)
{
    if (!libraries || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_libraries_at: libraries or out is NULL");
    *out = (strata_library){0};
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&libraries->lock);
    const size_t count = libraries->count;
    const entry *one = libraries->last;
    for (size_t i = count; one && i > index + 1; i--)
        one = one->before;
    strata_lock_release(&libraries->lock);
    if (index >= count)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "there is no library %zu; the set has %zu", index, count);
    *out = (strata_library){one->name, one->version, one->handle};
    return STRATA_SUCCESS;
}

static strata_status refuse_unknown(strata_libraries *libraries, const char *name)
{
    char there[200] = "";
    strata_library one;
    for (size_t i = 0; i < strata_libraries_count(libraries); i++)
        if (strata_libraries_at(libraries, i, &one) == STRATA_SUCCESS &&
            strlen(there) + strlen(one.name) + 3 < sizeof there) {
            strcat(there, *there ? ", " : "");
            strcat(there, one.name);
        }
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "the set has no library \"%.64s\"; it has: %s", name,
                       *there ? there : "none");
}

strata_status strata_libraries_find(strata_libraries *libraries, const char *name, strata_library *out)
{
    if (!libraries || !name || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_libraries_find: libraries, name or out is NULL");
    *out = (strata_library){0};
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    const entry *one = find_entry(libraries, name, strlen(name));
    if (!one)
        return refuse_unknown(libraries, name);
    *out = (strata_library){one->name, one->version, one->handle};
    return STRATA_SUCCESS;
}

strata_blas *strata_libraries_blas(strata_libraries *libraries)
{
    const bool can_look = libraries && strata_driver_state_now() != STRATA_DRIVER_FORKED;
    const entry *one = can_look ? find_entry(libraries, "blas", 4) : NULL;
    return one && one->is_blas ? one->handle : NULL;
}

strata_status strata_libraries_close(strata_libraries *libraries)
{
    strata_status status = strata_check_not_forked();
    if (!libraries || status != STRATA_SUCCESS)
        return status;
    for (entry *one = libraries->last, *before; one; one = before) {
        before = one->before;
        if (one->is_blas) {
            const strata_status destroyed = strata_blas_destroy(one->handle);
            status = status == STRATA_SUCCESS ? destroyed : status;
        } else if (one->destroy) {
            one->destroy(one->handle, one->data);
        }
        strata_host_free(one);
    }
    strata_lock_destroy(&libraries->lock);
    strata_host_free(libraries);
    return status;
}
