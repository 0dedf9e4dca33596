/* What every fuzz target begins with, and what a failed check does.
 *
 * A target is one file with LLVMFuzzerTestOneInput, and LLVMFuzzerInitialize where it needs a driver. libFuzzer brings
 * its own main; fuzz/replay.c is another one, which runs committed inputs through the same functions. The checks are
 * those of the tests; one that fails aborts, so that the input that made it fail is kept. */
#ifndef STRATA_FUZZ_BEGIN_H
#define STRATA_FUZZ_BEGIN_H

#include "support/driver.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Opens the simulated driver with 1 GiB of device memory, makes its context current, and lets failed checks abort. */
void fuzz_begin(void);

/* The simulated driver's function of this name, put where `entry` points to: one of strata/sim.h, or an entry point of
 * the driver that the library itself has no use for. */
void fuzz_find(const char *name, void *entry);

/* What is alive in the simulated driver now. */
strata_sim_accounts fuzz_accounts(void);

/* Waits for the device, and checks that what is alive is what was alive at `before`. Events are Strata's to keep, for
 * the next that needs one, but there is an end to how many it keeps. */
void fuzz_check_accounts(const strata_sim_accounts *before);

/* Tells, when FUZZ_TELL is set in the environment, what an input means. */
void fuzz_tell(const char *format, ...) STRATA_PRINTF(1, 2);

#endif
