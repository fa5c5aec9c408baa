/*
 * The target of benchmarks.many_mappings: a process of many mappings that measures how long it stands still.
 *
 * many_mappings MAPPINGS: maps as many pages, of which every second one is read-only, so each is a mapping of its own;
 * every 16th is written. Then it writes these pages in turn, and maps and unmaps one further page after each 64 of
 * them, for which the kernel wants the lock of the memory map. On SIGUSR1 it prints, and forgets, two numbers of
 * nanoseconds: the longest time between two readings of its clock, and the longest of the calls.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

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
	int64_t longest_ns = 0, longest_call_ns = 0, before_ns = now_ns();
	for (size_t page = 0, count = 1;; page = page + WRITTEN < pages ? page + WRITTEN : 0, count++) {
		memory[page * PAGE]++;
		int64_t t_ns = now_ns();
		if (t_ns - before_ns > longest_ns)
			longest_ns = t_ns - before_ns;
		before_ns = t_ns;
		if (count % BETWEEN_CALLS == 0) {
			munmap(map(PAGE), PAGE);
			int64_t end_ns = now_ns();
			if (end_ns - t_ns > longest_call_ns)
				longest_call_ns = end_ns - t_ns;
		}
		if (asked) {
			asked = 0;
			printf("%lld %lld\n", (long long)longest_ns, (long long)longest_call_ns);
			fflush(stdout);
			longest_ns = longest_call_ns = 0;
			before_ns = now_ns();
		}
	}
}
