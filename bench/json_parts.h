/* JSON for a report. The functions exit without memory. */
#ifndef STRATA_BENCH_JSON_PARTS_H
#define STRATA_BENCH_JSON_PARTS_H

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static inline void *require_json(void *made)
{
    if (!made) {
        fprintf(stderr, "%s: no memory for the report\n", program_invocation_short_name);
        exit(EXIT_FAILURE);
    }
    return made;
}

static inline json_t *put(json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, require_json(value)) != 0)
        require_json(NULL);
    return value;
}

static inline json_t *append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, require_json(value)) != 0)
        require_json(NULL);
    return value;
}

#endif
