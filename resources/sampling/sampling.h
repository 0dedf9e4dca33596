/* The sampling guard, guard(sample=N), for the guard's options and calls. */
#ifndef STRATA_RESOURCES_SAMPLING_SAMPLING_H
#define STRATA_RESOURCES_SAMPLING_SAMPLING_H

#include "resources/findings/findings.h"

#include <strata/resource.h>

struct strata_device;

/* What is wrong with the options; NULL: they are valid. */
const char *sampling_options_problem(const strata_guard_options *options);

strata_status sampling_create(struct strata_device *device, const strata_guard_options *options, strata_resource **out);
bool sampling_is_one(const strata_resource *resource);

/* For a sampling guard: its findings, strata_guard_check without their count, and strata_guard_fault_candidates_print.
 */
findings_log *sampling_findings(strata_resource *resource);
strata_status sampling_check(strata_resource *resource);
void sampling_print_candidates(strata_resource *resource, strata_write_callback write, void *data);

#endif
