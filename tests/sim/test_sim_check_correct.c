/* Small correct programs whose order is not obvious: the checker reports none of them, under any policy and seed. */
#include "planted/correct.h"

int main(void)
{
    return run_programs(correct, CORRECT, run_seeds);
}
