/* JSON numbers, and texts that may be invalid UTF-8. */
#ifndef STRATA_TOOLS_JSON_VALUES_H
#define STRATA_TOOLS_JSON_VALUES_H

#include "core/base/escape.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* JSON integers are signed here: larger values become the largest. */
static inline int json_set_number(json_t *object, const char *key, uint64_t value)
{
    return json_object_set_new(object, key, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

/* The text, or in `room` a copy with U+FFFD for each invalid byte. */
static inline const char *json_plain(const char *text, char *room, size_t size)
{
    json_t *taken = json_string(text);
    if (taken) {
        json_decref(taken);
        return text;
    }
    strata_make_utf8(room, size, text);
    return room;
}

/* A text of any length as a string object, as above. NULL without memory. */
static inline json_t *json_text(const char *text)
{
    const size_t size = strlen(text) * (sizeof STRATA_UTF8_REPLACEMENT - 1) + 1;
    json_t *made = json_string(text);
    char *room = made ? NULL : malloc(size);
    if (!room)
        return made;
    strata_make_utf8(room, size, text);
    made = json_string(room);
    free(room);
    return made;
}

#endif
