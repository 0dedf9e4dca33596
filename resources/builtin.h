/* The layers that come with the library. */
#ifndef STRATA_RESOURCES_BUILTIN_H
#define STRATA_RESOURCES_BUILTIN_H

#include <strata/resource.h>

#include <stdbool.h>

extern const strata_layer strata_direct_layer;
extern const strata_layer strata_async_layer;
extern const strata_layer strata_null_layer;
extern const strata_layer strata_budget_layer;
extern const strata_layer strata_statistics_layer;
extern const strata_layer strata_logging_layer;
extern const strata_layer strata_guard_layer;
extern const strata_layer strata_managed_layer;
extern const strata_layer strata_pinned_layer;
extern const strata_layer strata_aligned_layer;
extern const strata_layer strata_failure_callback_layer;
extern const strata_layer strata_fallback_layer;
extern const strata_layer strata_fault_layer;
extern const strata_layer strata_prefetch_layer;
extern const strata_layer strata_nvtx_layer;
extern const strata_layer strata_pool_layer;
extern const strata_layer strata_fixed_layer;
extern const strata_layer strata_binning_layer;

/* Whether a layer is a guard with zones around its blocks, which its own kernels look at. */
bool strata_has_zones(const strata_resource *resource);

/* Makes their names known to stack texts; done once, later calls return at once. Any thread. */
strata_status strata_builtin_register(void);

#endif
