/* RTLD_NEXT means behind the caller: each library finds the next one's marker, and not its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#if defined FIRST
__attribute__((visibility("default"))) const char order_marker[] = "first";
__attribute__((visibility("default"))) const char *find_next_marker(void);

const char *find_next_marker(void)
{
    const char *found = dlsym(RTLD_NEXT, "order_marker");
    return found ? found : "nothing";
}
#elif defined SECOND
__attribute__((visibility("default"))) const char order_marker[] = "second";
#else
const char *find_next_marker(void);

int main(void)
{
    const char *from_here = dlsym(RTLD_NEXT, "order_marker");
    printf("from the program: %s, from the first: %s\n", from_here ? from_here : "nothing", find_next_marker());
    return 0;
}
#endif
