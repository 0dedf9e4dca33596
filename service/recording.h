/* The text of a recording (docs/formats/recording.md): what its writer and its reader share.
 *
 *     strata service recording 1
 *     1834 7 normal none 0 allocate 1 f32 1024 zeroed
 *     2210 7 normal none 0 to_host 1:0:f32:1024
 *
 * A line ends with a line feed: what has none was cut off. */
#ifndef STRATA_SERVICE_RECORDING_H
#define STRATA_SERVICE_RECORDING_H

#include "service/future.h"

enum {
    RECORDING_NAME_LIMIT = 4096,       /* bytes of a kernel's entry or an operation's name, as written */
    RECORDING_IMAGE_LIMIT = 32 << 20,  /* bytes of a module */
    RECORDING_FILE_LIMIT = 1024 << 20, /* bytes of a file that is read */
    RECORDING_UNKNOWN = SERVICE_KINDS, /* a request that exceeds the limits */
    RECORDING_INTO,                    /* before the kind of a request that is recorded in a graph */
    RECORDING_KINDS,
    RECORDING_ARGUMENT_KINDS = STRATA_ARGUMENT_READ_WRITE + 1,
    RECORDING_ROUTINES = STRATA_BLAS_NRM2 + 1,
    RECORDING_FIELDS = 12,
};

extern const char service_recording_head[];

/* The words of each value, in the order of its enumeration. */
extern const char *const service_recording_kinds[RECORDING_KINDS];
extern const char *const service_recording_priorities[STRATA_PRIORITY_HIGH + 1];
extern const char *const service_recording_hints[STRATA_HINT_LONG + 1];
extern const char *const service_recording_arguments[RECORDING_ARGUMENT_KINDS];
extern const char *const service_recording_orders[STRATA_BLAS_COLUMNS + 1];

/* What a request for cuBLAS has, in the order of its line. */
typedef enum recording_field_kind {
    RECORDING_ORDER,
    RECORDING_BOOL,    /* 0 or 1 */
    RECORDING_SIZE,    /* decimal */
    RECORDING_DOUBLE,  /* 16 hexadecimal digits of its bits: text would depend on the locale, and round */
    RECORDING_OPERAND, /* REFERENCE/OFFSET/LEADING/STRIDE/STEP */
} recording_field_kind;

typedef struct recording_field {
    const char *name;
    recording_field_kind kind;
    size_t at; /* in strata_service_blas_call */
} recording_field;

typedef struct recording_routine {
    const char *name;
    size_t count;
    recording_field fields[RECORDING_FIELDS];
} recording_routine;

extern const recording_routine service_recording_routines[RECORDING_ROUTINES];

#endif
