/* One line of a recording, read and checked by itself. */
#ifndef STRATA_SERVICE_RECORDING_LINE_H
#define STRATA_SERVICE_RECORDING_LINE_H

#include "service/recording.h"

typedef struct recorded_ref {
    uint64_t number;              /* of the allocation; 0: unknown */
    size_t offset, length, bytes; /* `length` elements of `type`, `bytes` in all, from `offset` bytes on */
    strata_element type;
} recorded_ref;

/* What a kind does not have is zero. */
typedef struct recorded_request {
    uint64_t time, sender, timeout;
    strata_priority priority;
    strata_service_hint hint;
    unsigned kind;     /* service_request_kind, or RECORDING_UNKNOWN */
    uint64_t into;     /* the graph that it is recorded in; 0: none */
    uint64_t number;   /* allocate, load, make graph: what it gives; launch: the module, play graph: the graph, 0:
                          unknown */
    recorded_ref made; /* allocate */
    bool raw;
    const char *image; /* load: two digits for each of `image_bytes` bytes, within the line */
    size_t image_bytes;
    char entry[RECORDING_NAME_LIMIT + 1]; /* launch; make graph: its name */
    uint32_t fill_value, fill_width;
    unsigned grid[3], block[3], shared_bytes;
    size_t argument_count;
    strata_argument arguments[STRATA_ARGUMENT_LIMIT]; /* without references: those are `refs`, in this order */
    strata_service_blas_call blas;                    /* the same of its operands */
    size_t ref_count;
    recorded_ref refs[STRATA_ARGUMENT_LIMIT];
} recorded_request;

/* Why a line is refused, for a message that names the line: which field, what it is, and what it can be. */
typedef struct recording_problem {
    char text[256];
} recording_problem;

/* Reads a line; false if it is refused, and *problem says why. */
bool recording_line_read(const char *line, size_t length, recorded_request *out, recording_problem *problem);

/* The bytes of an image whose line was read. */
void recording_image_read(const recorded_request *request, unsigned char *into);

#endif
