/* When holding more memory is cheaper than moving it, or than asking other streams for theirs, again and again. Growth
 * is held in all of it. */
#ifndef STRATA_RESOURCES_POOL_SLACK_H
#define STRATA_RESOURCES_POOL_SLACK_H

#include "resources/pool/pool.h"

/* Memory was made within the slack: what was moved before counts no more. */
void pool_slack_forget_moves(pool *self);

/* So many frames were moved, of so many bytes in all. */
void pool_slack_note_moves(pool *self, size_t frames, uint64_t bytes);

/* Whether so much was moved of what there is, and for so few requests, that memory should grow by more at a time. */
bool pool_slack_moving_is_costly(const pool *self);

/* What may be reserved beyond what was live at most, as a share of that. */
double pool_slack_now(pool *self);

/* Looks now and then how often others are asked; sets `asking_is_costly`. */
void pool_slack_weigh_asking(pool *self);

#endif
