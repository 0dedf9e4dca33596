/* Writing a report piece by piece, as text for people or as JSON: layers describe themselves through it, and what is
 * written goes to a callback. Nothing is allocated.
 *
 * A report is an object; objects and lists nest in it. As text, every value is a line "name: value" under the name of
 * what it is in. As JSON the same calls give one JSON object: names and texts are escaped, bytes that are no UTF-8
 * come out as U+FFFD, counts are whole numbers. */
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

/* Receives a piece of a report: `length` bytes, not terminated. Called on the thread that makes the report; it may not
 * call Strata. */
typedef void (*strata_write_callback)(const char *text, size_t length, void *data);

typedef struct strata_emitter strata_emitter;

/* Begin and end an object or a list. `name` is NULL for the elements of a list. Up to 30 can be open at a time; what
 * lies deeper is left out. */
STRATA_API void strata_emit_object_begin(strata_emitter *emitter, const char *name);
STRATA_API void strata_emit_object_end(strata_emitter *emitter);
STRATA_API void strata_emit_list_begin(strata_emitter *emitter, const char *name);
STRATA_API void strata_emit_list_end(strata_emitter *emitter);

/* One value each: a count; a size in bytes, which text also gives in the largest fitting unit; an address or another
 * number that is read as hexadecimal, in JSON as a text "0x..."; yes or no; a text, NULL for none. */
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
