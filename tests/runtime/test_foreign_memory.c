/* later */
int main(void)
{
    return 0;
}
