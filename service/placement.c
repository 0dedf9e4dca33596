/* Several devices: a service for each, and the choice among them. */
#include <strata/service.h>

#include <strata/info.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "service/service.h"

#include <string.h>

/* Whether each device's recording has a name of its own. */
static bool names_device(const char *record)
{
    for (const char *c = record; (c = strchr(c, '%')) && c[1]; c += 2)
        if (c[1] == 'd')
            return true;
    return false;
}

strata_status strata_services_create(const strata_service_options *options, strata_service **services, size_t room,
                                     size_t *count)
{
    if (!services || !count)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_services_create: services or count is NULL");
    strata_service_options one = {0};
    strata_status status = strata_options_read(&one, sizeof one, options, "strata_service_options");
    if (status == STRATA_SUCCESS && *count == 0) {
        strata_driver_info driver;
        status = strata_driver_get_info(&driver);
        *count = status == STRATA_SUCCESS ? (size_t)driver.device_count : 0;
    }
    if (status == STRATA_SUCCESS && *count > room)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_services_create: %zu devices, and room for %zu",
                             *count, room);
    if (status == STRATA_SUCCESS && *count > 1 && one.record && !names_device(one.record))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "strata_services_create: %zu services cannot record to one file, %.300s: put %%d, the "
                             "device, into its name",
                             *count, one.record);
    one.size = 0; /* as this library knows it */
    size_t made = 0;
    for (; made < *count && status == STRATA_SUCCESS; made++) {
        one.device = (int)made;
        status = strata_service_create(&one, &services[made]);
        if (status != STRATA_SUCCESS)
            break;
    }
    if (status == STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin(); /* the failure is what counts */
    while (made--) {
        strata_service_destroy(services[made]);
        services[made] = NULL;
    }
    strata_error_suppress_end(false);
    return status;
}

/* ---- placement ---- */

static bool meets(const strata_service_stats *stats, const strata_placement_conditions *conditions)
{
    const bool newer = stats->compute_major > conditions->compute_major;
    const bool computes = newer || (stats->compute_major == conditions->compute_major &&
                                    stats->compute_minor >= conditions->compute_minor);
    const bool asks = conditions->free_bytes || conditions->compute_major || conditions->ready;
    return (!asks || stats->ready) && computes && stats->free_bytes >= conditions->free_bytes;
}

static bool is_better(const strata_service_stats *a, const strata_service_stats *b)
{
    const uint64_t load_a = a->queued + a->in_flight, load_b = b->queued + b->in_flight;
    return load_a != load_b ? load_a < load_b : a->free_bytes > b->free_bytes;
}

strata_status strata_services_place(strata_service *const *services, size_t count, strata_placement placement,
                                    const strata_placement_conditions *given, strata_service **out)
{
    static _Atomic uint64_t turn; /* of round robin; any thread */
    strata_placement_conditions conditions;
    strata_service_stats best = {0}, stats;
    if (out)
        *out = NULL;
    if (!services || !count || !out || (unsigned)placement > STRATA_PLACEMENT_ROUND_ROBIN)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_services_place: no services, no placement %d, or out is NULL", (int)placement);
    strata_status status = strata_options_read(&conditions, sizeof conditions, given, "strata_placement_conditions");
    if (status != STRATA_SUCCESS)
        return status;
    const size_t first = placement == STRATA_PLACEMENT_ROUND_ROBIN
                             ? (size_t)(atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % count)
                             : 0;
    for (size_t i = 0; i < count; i++) {
        strata_service *one = services[(first + i) % count];
        status = one ? strata_service_get_stats(one, &stats)
                     : strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_services_place: services[%zu] is NULL",
                                   (first + i) % count);
        if (status != STRATA_SUCCESS)
            return status;
        const bool ranked = !conditions.rank || one->options.rank >= conditions.rank;
        if (service_is_open(one) && ranked && meets(&stats, &conditions) && (!*out || is_better(&stats, &best))) {
            *out = one;
            best = stats;
        }
        if (*out && placement == STRATA_PLACEMENT_ROUND_ROBIN)
            return STRATA_SUCCESS;
    }
    return *out ? STRATA_SUCCESS
                : strata_fail(STRATA_ERROR_NOT_READY,
                              "no service of %zu meets the conditions now: one that is open%s, with %zu free bytes, "
                              "compute capability "
                              "%u.%u and rank %d; wait for one, or ask for less",
                              count, conditions.ready ? " and ready" : "", conditions.free_bytes,
                              conditions.compute_major, conditions.compute_minor, conditions.rank);
}
