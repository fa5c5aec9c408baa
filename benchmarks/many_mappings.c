/*
 * The target of benchmarks.many_mappings: a process of many mappings that measures how long it stands still.
 *
 * many_mappings MAPPINGS: maps as many pages, of which every second one is read-only, so each is a mapping of its own;
 * every 16th is written. Then it writes these pages in turn, and maps and unmaps one further page after each 64 of
 * them, for which the kernel wants the lock of the memory map. On SIGUSR1 it prints, and forgets, two numbers of
 * nanoseconds: the longest such round by its clock, and the longest without the time in which it waited for a CPU.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WRITTEN = 16, BETWEEN_CALLS = 64 };

static volatile sig_atomic_t asked;

static void ask(int number)
{
	(void)number;
	asked = 1;
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t waited_ns(int schedstat) /* for a CPU, since the start: the second number */
{
	char text[64] = "";
	long long waited = 0;
	if (pread(schedstat, text, sizeof text - 1, 0) > 0)
		sscanf(text, "%*d %lld", &waited);
	return waited;
}

static char *map(size_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return memory;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	size_t pages = strtoul(argv[1], NULL, 10);
	char *memory = map(pages * PAGE);
	madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
	for (size_t page = 0; page < pages; page += WRITTEN)
		memory[page * PAGE] = 1;
	for (size_t page = 1; page < pages; page += 2)
		if (mprotect(memory + page * PAGE, PAGE, PROT_READ)) {
			perror("mprotect");
			return 1;
		}
	signal(SIGUSR1, ask);
	puts("ready");
	fflush(stdout);
	int schedstat = open("/proc/self/schedstat", O_RDONLY);
	int64_t longest_ns = 0, longest_awake_ns = 0, before_ns = now_ns(), waited_before_ns = waited_ns(schedstat);
	for (size_t page = 0;;) {
		for (int count = 0; count < BETWEEN_CALLS; count++) {
			memory[page * PAGE]++;
			page = page + WRITTEN < pages ? page + WRITTEN : 0;
		}
		munmap(map(PAGE), PAGE);
		int64_t t_ns = now_ns(), w_ns = waited_ns(schedstat);
		int64_t took_ns = t_ns - before_ns, awake_ns = took_ns - (w_ns - waited_before_ns);
		longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
		longest_awake_ns = awake_ns > longest_awake_ns ? awake_ns : longest_awake_ns;
		before_ns = t_ns;
		waited_before_ns = w_ns;
		if (asked) {
			asked = 0;
			printf("%lld %lld\n", (long long)longest_ns, (long long)longest_awake_ns);
			fflush(stdout);
			longest_ns = longest_awake_ns = 0;
			before_ns = now_ns();
			waited_before_ns = waited_ns(schedstat);
		}
	}
}
