/* Linked statically: nothing can be loaded before it. */
#include <stdio.h>

int main(void)
{
    printf("static\n");
    return 0;
}
