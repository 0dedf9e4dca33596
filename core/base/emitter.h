/* The emitter's state. */
#ifndef STRATA_CORE_BASE_EMITTER_H
#define STRATA_CORE_BASE_EMITTER_H

#include <strata/emitter.h>

enum { STRATA_EMITTER_DEPTH = 31 }; /* the report and what may be open in it */

struct strata_emitter {
    strata_format format;
    strata_write_callback write;
    void *data;
    unsigned depth; /* open objects and lists, also those too deep to be written */
    unsigned floor; /* of these, what _end functions do not close */
    struct {
        bool list;
        bool any; /* it already has an entry */
    } open[STRATA_EMITTER_DEPTH];
};

/* Open and close the report's object. */
void strata_emitter_begin(strata_emitter *emitter, strata_format format, strata_write_callback write, void *data);
void strata_emitter_end(strata_emitter *emitter);

/* Around a callback that writes to the report: it closes nothing that it did not open, and what it left open is closed.
 * Returns what the second call takes. */
unsigned strata_emitter_enclose(strata_emitter *emitter);
void strata_emitter_release(strata_emitter *emitter, unsigned before);

#endif
