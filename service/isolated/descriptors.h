/* Descriptors that a forked child must not have: the child closes them first of all. A program that is executed has
 * none, since all are close-on-exec. */
#ifndef STRATA_SERVICE_ISOLATED_DESCRIPTORS_H
#define STRATA_SERVICE_ISOLATED_DESCRIPTORS_H

#include "core/base/fork_wait.h"

typedef strata_fork_hold isolated_change;

/* Any thread. A descriptor is made and added between begin and end, so that no child is forked in between, unless that
 * takes more than a second; no wait, and no close of an added one, in there. -1 is ignored. */
isolated_change isolated_descriptors_begin(void);
void isolated_descriptor_add(int fd);
void isolated_descriptors_end(isolated_change change);

void isolated_descriptor_close(int fd);

#endif
