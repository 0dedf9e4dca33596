/* One pass for a hit below budget, logging and statistics. */
#ifndef STRATA_RESOURCES_FUSED_FUSED_H
#define STRATA_RESOURCES_FUSED_FUSED_H

/* Offers it to the stacks that are built from now on (core/stack/fuse.h). When the library is loaded, this is done;
 * where it is linked statically, the call has the linker take this part. */
void strata_fused_offer(void);

#endif
