/* The emitter's own state, and beginning and ending a report. */
#ifndef STRATA_CORE_BASE_EMITTER_H
#define STRATA_CORE_BASE_EMITTER_H

#include <strata/emitter.h>

enum { STRATA_EMITTER_DEPTH = 32 };

struct strata_emitter {
    strata_format format;
    strata_write_callback write;
    void *data;
    unsigned depth; /* objects and lists that are open, also those too deep to be written */
    struct {
        bool list;
        bool any; /* something stands in it already */
    } open[STRATA_EMITTER_DEPTH];
};

/* Opens the report's object, and closes it. */
void strata_emitter_begin(strata_emitter *emitter, strata_format format, strata_write_callback write, void *data);
void strata_emitter_end(strata_emitter *emitter);

#endif
