/* When holding more memory is cheaper than moving it, or than asking other streams for theirs, again and again. Growth
 * is held in all of it. */
#ifndef STRATA_RESOURCES_POOL_OVERHEAD_H
#define STRATA_RESOURCES_POOL_OVERHEAD_H

#include "resources/pool/internal.h"

/* Nanoseconds, since whenever. Growth need not be held. */
uint64_t pool_overhead_clock(const pool *self);

/* So many bytes were moved, from a time by that clock until now, and growth was held throughout. */
void pool_overhead_record_moves(pool *self, uint64_t began, uint64_t bytes);

/* Memory was made from a time until now, which is done once: that is no time of the program's. How long it took. */
uint64_t pool_overhead_exclude(pool *self, uint64_t began);

/* What may be reserved beyond what was live at most, as a share of that. */
double pool_overhead_now(pool *self);

/* Looks now and then how often others are asked; sets `polling_is_costly`. */
void pool_overhead_weigh_polling(pool *self);

#endif
