/* The driver's names, for linking. */
#include "calls.h"

#define STUB(name, symbol, version)            \
    void stub_##symbol(void) __asm__(#symbol); \
    void stub_##symbol(void)                   \
    {                                          \
    }
CALLS(STUB)
STUB(, cuNewThing, )
