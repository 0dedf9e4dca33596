/* Error records in frames. The names in a record are static texts, so that those which come are kept for good: few, and
 * each once. */
#include "core/base/lock.h"
#include "service/isolated/wire.h"

#include <stdio.h>
#include <string.h>

enum { NAMES = 256 };

typedef char name_text[sizeof((wire_error *)0)->driver_name];

static strata_lock names_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_SERVICE_NAMES);
static name_text names[NAMES]; /* guarded by names_lock; a name, once written, is constant */
static size_t name_count;

static void put_text(char *to, size_t room, const char *text)
{
    snprintf(to, room, "%s", text ? text : "");
}

void wire_pack_error(const strata_error *error, wire_error *packed)
{
    *packed = (wire_error){
        .status = error->status,
        .driver_code = error->driver_code,
        .tag = 0, /* tags are numbers of the process */
        .requested = error->requested,
        .in_use = error->in_use,
        .remaining = error->remaining,
        .limit = error->limit,
        .reserved_free = error->reserved_free,
        .largest_free = error->largest_free,
        .device_free = error->device_free,
        .generation = error->generation,
    };
    put_text(packed->driver_name, sizeof packed->driver_name, error->driver_name);
    put_text(packed->driver_call, sizeof packed->driver_call, error->driver_call);
    put_text(packed->message, sizeof packed->message, error->message);
}

/* A static copy of an identifier; NULL for any other text, and when there is no room for more names. */
static const char *keep_name(const char *text)
{
    const size_t length = strnlen(text, sizeof(name_text));
    const char *kept = NULL;
    bool is_name = length > 0 && length < sizeof(name_text);
    for (size_t i = 0; i < length && is_name; i++)
        is_name = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
                  (text[i] >= '0' && text[i] <= '9') || text[i] == '_';
    if (!is_name)
        return NULL;
    strata_lock_take(&names_lock);
    for (size_t i = 0; i < name_count && !kept; i++)
        if (strcmp(names[i], text) == 0)
            kept = names[i];
    if (!kept && name_count < NAMES)
        kept = memcpy(names[name_count++], text, length + 1);
    strata_lock_release(&names_lock);
    return kept;
}

/* Whether a status is a failure's. NOT_READY says that there is no answer yet. */
static bool is_failure(uint32_t status)
{
    return status != STRATA_SUCCESS && status != STRATA_ERROR_NOT_READY &&
           strcmp(strata_status_name((strata_status)status), "STRATA_ERROR_UNKNOWN") != 0;
}

void wire_unpack_error(const wire_error *packed, strata_error *error)
{
    *error = (strata_error){
        .status = is_failure(packed->status) ? (strata_status)packed->status : STRATA_ERROR_POISONED,
        .driver_code = (CUresult)packed->driver_code,
        .driver_name = keep_name(packed->driver_name),
        .driver_call = keep_name(packed->driver_call),
        .requested = packed->requested,
        .in_use = packed->in_use,
        .remaining = packed->remaining,
        .limit = packed->limit,
        .reserved_free = packed->reserved_free,
        .largest_free = packed->largest_free,
        .device_free = packed->device_free,
        .generation = packed->generation,
    };
    memcpy(error->message, packed->message, sizeof error->message);
    error->message[sizeof error->message - 1] = '\0';
    for (char *at = error->message; *at; at++) /* it may be printed */
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = ' ';
}
