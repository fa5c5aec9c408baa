/* Writes to pages of 64 MiB in random order, and says what they hold in the end. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
	size_t pages = 64 * 256;
	long steps = count > 1 ? atol(words[1]) : 1;
	unsigned char *memory = calloc(pages, 4096);
	uint64_t random = 88172645463325252ULL, sum = 0;

	for (long i = 0; i < steps * 1000000; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		memory[random % pages * 4096 + (random >> 40) % 4096]++;
		if (i % 1000000 == 0)
			fprintf(stderr, "step %ld\n", i / 1000000);
	}
	for (size_t i = 0; i < pages * 4096; i++)
		sum = sum * 31 + memory[i];
	printf("%016llx\n", (unsigned long long)sum);
	return 0;
}
