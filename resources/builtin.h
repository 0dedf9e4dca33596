/* The layers that come with the library. */
#ifndef STRATA_RESOURCES_BUILTIN_H
#define STRATA_RESOURCES_BUILTIN_H

#include <strata/resource.h>

extern const strata_layer strata_direct_layer;
extern const strata_layer strata_async_layer;
extern const strata_layer strata_null_layer;
extern const strata_layer strata_budget_layer;
extern const strata_layer strata_statistics_layer;
extern const strata_layer strata_logging_layer;
extern const strata_layer strata_guard_layer;

/* Makes their names known to stack texts; done once, later calls return at once. Any thread. */
strata_status strata_builtin_register(void);

#endif
