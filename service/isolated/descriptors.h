/* Descriptors that a forked child must not have: the child closes them first of all. A program that is executed has
 * none, since all are close-on-exec. */
#ifndef STRATA_SERVICE_ISOLATED_DESCRIPTORS_H
#define STRATA_SERVICE_ISOLATED_DESCRIPTORS_H

/* Any thread. -1 is ignored. */
void isolated_descriptor_add(int fd);
void isolated_descriptor_close(int fd);

#endif
