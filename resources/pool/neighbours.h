/* Pools of the process on one device. No lock of a pool is held. */
#ifndef STRATA_RESOURCES_POOL_NEIGHBOURS_H
#define STRATA_RESOURCES_POOL_NEIGHBOURS_H

#include "resources/pool/internal.h"

enum { POOL_NEIGHBOURS_TEXT = 160 };

void pool_neighbours_join(pool *self);

/* Afterwards no other pool calls this one. */
void pool_neighbours_leave(pool *self);

/* Makes other pools return free memory to the device until it is `bytes`: what is complete, then, if it may, what has
 * to be waited for. Returns what they returned. */
uint64_t pool_neighbours_reclaim(const pool *self, uint64_t bytes, bool may_wait);

/* For a message of a refusal: empty if others hold nothing. */
void pool_neighbours_describe(const pool *self, char text[POOL_NEIGHBOURS_TEXT]);

#endif
