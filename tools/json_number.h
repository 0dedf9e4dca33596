/* Numbers, and texts that may be no UTF-8, in JSON objects. */
#ifndef STRATA_TOOLS_JSON_NUMBER_H
#define STRATA_TOOLS_JSON_NUMBER_H

#include "core/escape.h"

#include <jansson.h>
#include <stdint.h>

/* Sets object[key]. JSON's integers are signed here: what does not fit becomes the largest. */
static inline int json_set_number(json_t *object, const char *key, uint64_t value)
{
    return json_object_set_new(object, key, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

/* A text as JSON takes it: as it is, or, where it is no UTF-8, with U+FFFD for each byte that is none, in `room`. */
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

#endif
