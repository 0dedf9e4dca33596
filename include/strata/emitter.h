/* A writer of reports as text or JSON, to a callback. It allocates nothing, and belongs to the call that received it.
 *
 * A report is an object; objects and lists nest in it. Text has a line "name: value" for each value, under its object's
 * name, with spaces for control characters. In JSON names and texts are escaped, counts are integers. Invalid UTF-8
 * becomes U+FFFD. */
#ifndef STRATA_EMITTER_H
#define STRATA_EMITTER_H

#include <strata/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_format {
    STRATA_FORMAT_TEXT = 0,
    STRATA_FORMAT_JSON,
} strata_format;

/* Receives `length` bytes of a report, not terminated, on the thread that makes the report. Must not call Strata. */
typedef void (*strata_write_callback)(const char *text, size_t length, void *data);

typedef struct strata_emitter strata_emitter;

/* Begin and end an object or list. `name`: NULL for elements of a list. At most 30 may be open; deeper ones are left
 * out. An end without a begin is ignored; what a layer's `describe` leaves open is closed behind it. */
STRATA_API void strata_emit_object_begin(strata_emitter *emitter, const char *name);
STRATA_API void strata_emit_object_end(strata_emitter *emitter);
STRATA_API void strata_emit_list_begin(strata_emitter *emitter, const char *name);
STRATA_API void strata_emit_list_end(strata_emitter *emitter);

/* Write a value: a count; bytes (text adds the largest fitting unit); a hexadecimal number (JSON: a string "0x..."); a
 * boolean; a text, NULL for none. */
STRATA_API void strata_emit_count(strata_emitter *emitter, const char *name, uint64_t value);
STRATA_API void strata_emit_signed(strata_emitter *emitter, const char *name, int64_t value);
STRATA_API void strata_emit_bytes(strata_emitter *emitter, const char *name, uint64_t bytes);
STRATA_API void strata_emit_hex(strata_emitter *emitter, const char *name, uint64_t value);
STRATA_API void strata_emit_bool(strata_emitter *emitter, const char *name, bool value);
STRATA_API void strata_emit_text(strata_emitter *emitter, const char *name, const char *text);

#ifdef __cplusplus
}
#endif

#endif
