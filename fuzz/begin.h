/* The set-up of all fuzz targets, and the effect of a failed check.
 *
 * A target is one file with LLVMFuzzerTestOneInput, and LLVMFuzzerInitialize if it needs a driver. libFuzzer has its
 * own main; fuzz/replay.c has another, which runs committed inputs through the same functions. A failed check, one of
 * those of the tests, aborts, so that libFuzzer keeps the input. */
#ifndef STRATA_FUZZ_BEGIN_H
#define STRATA_FUZZ_BEGIN_H

#include "support/driver.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Opens the simulated driver with 1 GiB of device memory, makes its context current, and makes failed checks abort. */
void fuzz_begin(void);

/* Stores the simulated driver's function of this name in *entry: a function of strata/sim.h, or an entry point that the
 * library itself does not use. */
void fuzz_find(const char *name, void *entry);

/* Returns what is alive in the simulated driver. */
strata_sim_accounts fuzz_accounts(void);

/* Waits for the device, and checks that what is alive equals `before`. Strata may keep a limited number of events. */
void fuzz_check_accounts(const strata_sim_accounts *before);

/* Prints the meaning of an input, if FUZZ_TELL is set in the environment. */
void fuzz_tell(const char *format, ...) STRATA_PRINTF(1, 2);

#endif
