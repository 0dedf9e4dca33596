/* Types that options of several layers share. */
#ifndef STRATA_TYPES_H
#define STRATA_TYPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of a duration option: never. Zero means the default. */
#define STRATA_NEVER UINT64_MAX

typedef enum strata_switch {
    STRATA_SWITCH_DEFAULT = 0, /* the driver's default: on */
    STRATA_SWITCH_ON,
    STRATA_SWITCH_OFF,
} strata_switch;

typedef enum strata_export_type {
    STRATA_EXPORT_NONE = 0,
    STRATA_EXPORT_POSIX_FD,
    STRATA_EXPORT_FABRIC,
} strata_export_type;

#ifdef __cplusplus
}
#endif

#endif
