/* Internals of the guard, for its tests. */
#ifndef TESTS_SUPPORT_GUARD_H
#define TESTS_SUPPORT_GUARD_H

#include "resources/guard/internal.h"

#endif
