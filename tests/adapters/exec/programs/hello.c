/* Calls no driver. Built with a sanitizer, whose run-time library looks symbols up before anything else runs. */
#include <stdio.h>

int main(void)
{
    printf("hello\n");
    return 0;
}
