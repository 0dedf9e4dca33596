/* The emitter's state, and how a report begins and ends. */
#ifndef STRATA_CORE_BASE_EMITTER_H
#define STRATA_CORE_BASE_EMITTER_H

#include <strata/emitter.h>

enum { STRATA_EMITTER_DEPTH = 32 };

struct strata_emitter {
    strata_format format;
    strata_write_callback write;
    void *data;
    unsigned depth; /* open objects and lists, including those too deep to be written */
    struct {
        bool list;
        bool any; /* it already has an entry */
    } open[STRATA_EMITTER_DEPTH];
};

/* Open and close the report's object. */
void strata_emitter_begin(strata_emitter *emitter, strata_format format, strata_write_callback write, void *data);
void strata_emitter_end(strata_emitter *emitter);

#endif
