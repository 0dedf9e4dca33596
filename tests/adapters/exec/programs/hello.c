/* Calls no driver. Built with a sanitizer, whose run-time library looks symbols up before anything else runs. With an
 * argument it starts a program, and says whether that has the sanitizer's library. */
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    (void)arguments;
    printf("hello\n");
    fflush(stdout);
    return count > 1 && system("grep -q libasan /proc/self/maps && echo sanitized || echo not sanitized") != 0;
}
