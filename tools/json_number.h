/* Numbers in JSON objects. */
#ifndef STRATA_TOOLS_JSON_NUMBER_H
#define STRATA_TOOLS_JSON_NUMBER_H

#include <jansson.h>
#include <stdint.h>

/* Sets object[key]. JSON's integers are signed here: what does not fit becomes the largest. */
static inline int json_set_number(json_t *object, const char *key, uint64_t value)
{
    return json_object_set_new(object, key, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

#endif
