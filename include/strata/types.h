/* Types that the options of several layers share. */
#ifndef STRATA_TYPES_H
#define STRATA_TYPES_H

#ifdef __cplusplus
extern "C" {
#endif

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
