/* Small programs with a bug: the checker reports each, under every policy and seed. */
#include "planted/bugs.h"

int main(void)
{
    return run_programs(bugs, sizeof bugs / sizeof bugs[0], run_seeds);
}
