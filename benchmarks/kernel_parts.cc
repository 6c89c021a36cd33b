// Where the fused pass spends its time: each part alone on one tile in cache, one thread, at the reference shapes.
// Prints one line of JSON: seconds for 50,000 records, the least of many repeats, and the seconds that the same
// thread needs for the multiplications of both products alone, from registers.
#include <stdio.h>
#include <time.h>

#include "sums.cc"

using namespace fedsofim;

constexpr int kRecords = 50000, kFeatures = 64, kClasses = 10, kTile = 64;
alignas(64) static float rows[kTile * kFeatures], columns[kTile * kFeatures], theta[(kFeatures + 1) * kClasses],
    z[kClasses * kTile], weight[kTile];
alignas(64) static double sums[kClasses * kFeatures];
alignas(64) static int32_t label[kTile];

static double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// The least seconds of `part`, which handles one tile, for all records.
template <typename Part>
static double seconds(Part part) {
  double least = 1e9;
  for (int repeat = 0; repeat < 300; repeat++) {
    double began = now();
    for (int tile = 0; tile < kRecords / kTile; tile++) {
      part();
      asm volatile("" ::: "memory");
    }
    double took = now() - began;
    least = took < least ? took : least;
  }
  return least * kRecords / (kRecords / kTile * kTile);
}

// As many multiply-adds as both products make of a tile, all independent, nothing loaded.
static void multiply() {
  Lanes sum[12];
  for (int i = 0; i < 12; i++) sum[i] = all(1e-3f * i);
  const Lanes a = all(0.999f), b = all(1e-3f);
  for (int i = 0; i < 2 * kTile * kFeatures * kClasses / kLanes / 12; i++)
    for (int j = 0; j < 12; j++) sum[j] = sum[j] * a + b;
  for (int j = 0; j < 12; j++) store(z, load(z) + sum[j] * 1e-30f);
}

int main() {
  unsigned state = 1;
  auto uniform = [&] { return (state = state * 1664525u + 1013904223u) / 4294967296.0f; };
  for (float& v : rows) v = 2 * uniform();
  for (float& v : theta) v = 0.2f * uniform() - 0.1f;
  for (float& v : weight) v = 1;
  for (int i = 0; i < kTile; i++) label[i] = i % kClasses;
  static Lanes length[kTile / kLanes];
  auto each = [](auto act) {
    for (int i = 0; i < kTile; i += kLanes) act(i);
  };
  double transposed = seconds([&] {
    each([](int i) {
      for (int k = 0; k < kFeatures; k += kLanes)
        transpose(rows + i * kFeatures + k, kFeatures, columns + i * kFeatures + k * kLanes);
    });
  });
  double norms = seconds([&] {
    each([](int i) { length[i / kLanes] = root(square_norm(columns + i * kFeatures, kFeatures)); });
  });
  double first = seconds([&] {
    each([](int i) {
      in_shares(kClasses, [=](int64_t c, int64_t w) {
        with_constant(w, Logits{columns + i * kFeatures, theta + c, kFeatures, kClasses, kTile, z + c * kTile + i});
      });
    });
  });
  double middle = seconds([&] {
    each([](int i) { residuals(z + i, kTile, kClasses, label + i, weight + i, length[i / kLanes], 10.0f); });
  });
  double second = seconds([&] {
    in_shares(kClasses, [](int64_t c, int64_t w) {
      const Group g = {nullptr, sums + c * kFeatures, true, true};
      with_constant(w, Outer{rows, z + c * kTile, kTile, kTile, kFeatures, g});
    });
  });
  printf("{\"multiplications\": %.9f, \"transposing a tile\": %.9f, \"norms |x|\": %.9f, \"X·θ\": %.9f, "
         "\"softmax, label, norms |r|, clipping\": %.9f, \"XᵀR\": %.9f}\n",
         seconds(multiply), transposed, norms, first, middle, second);
}
