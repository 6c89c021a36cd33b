// The arithmetic of one tile of records, kept in registers and the first cache.
//
// A record's gradient is [x;1] ⊗ r with r = softmax(θᵀ[x;1]) - onehot(y), so its norm is |[x;1]|·|r| and the clipped
// sum over a tile is two products with little between them. First one lane is one record (`logits`, `residuals`);
// then one lane is one feature (`outer`), so that neither product needs a sum across lanes.
//
// What is rounded where, and why one record cannot move the sum by more than is priced: docs/clipping.md. In short,
// at most kGroup records are added up in floats, and sums of groups in doubles.
#pragma once

#include <math.h>
#include <stdint.h>

#include <initializer_list>

#include "lanes.h"

namespace fedsofim {

constexpr int kGroup = 64;     // records that are added up in floats: core/clipping.py `GROUP`, which the guard is for
constexpr int kTerms = 64;     // squares that are added up in floats before a sum of more precision takes over
constexpr float kUp = 0x1p60f; // residuals are squared in this scale: 1e-28 is a residual that can matter

// e^x for x <= 0, to two units in the last place: 2^n·e^s with |s| <= log(2)/2. NaN stays NaN.
inline Lanes exp_negative(Lanes x) {
  const Lanes least = all(-87.0f);  // e^-87 is the last before denormal numbers
  x = select(x < least, least, x);
  const float round = 12582912.0f;  // 1.5·2^23: adding it leaves the nearest whole number in the last bits
  Lanes whole = x * 1.44269504f + round, n = whole - round;
  Lanes s = (x - n * 0.693145752f) - n * 1.42860677e-6f;  // log(2) in two parts
  Lanes p = all(1.9875691e-4f);
  for (float c : {1.3981999e-3f, 8.3334519e-3f, 4.1665796e-2f, 1.6666665e-1f, 5.0000001e-1f}) p = p * s + c;
  p = p * s * s + s + 1.0f;
  return as_floats(bits_of(p) + (bits_of(whole) << 23));
}

// |[x;1]|² of 16 records side by side: at most kTerms squares in floats, four sums in turn, since each must wait for its
// last addition; then in doubles. Its relative error is below 20 units in the last place, whatever the width.
inline Lanes square_norm(const float* x, int64_t width) {
  Sums total(1.0);
  for (int64_t from = 0; from < width; from += kTerms) {
    const int64_t end = from + kTerms < width ? from + kTerms : width;
    Lanes sum[4] = {};
    for (int64_t k = from; k < end; k += 4)
      for (int j = 0; j < 4; j++) sum[j] += load(x + (k + j) * kLanes) * load(x + (k + j) * kLanes);
    total += (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  return total.nearest();
}

inline Lanes root(Lanes x) {
  alignas(64) float out[kLanes];
  store(out, x);
  for (int i = 0; i < kLanes; i++) out[i] = sqrtf(out[i]);
  return load(out);
}

// z_c = Σ_k θ_kc·x_k + θ_pc for `w` classes, 16 records side by side; x is transposed, θ (p+1, classes).
template <int w>
void logits(const float* x, int64_t p, const float* theta, int64_t classes, float* z, int64_t stride) {
  Lanes sum[w];
  for (int c = 0; c < w; c++) sum[c] = all(theta[p * classes + c]);
  for (int64_t k = 0; k < p; k++) {
    Lanes feature = load(x + k * kLanes);
    for (int c = 0; c < w; c++) sum[c] += feature * theta[k * classes + c];
  }
  for (int c = 0; c < w; c++) store(z + c * stride, sum[c]);
}

// Where the sums of a group of records are: begun at zero or in floats, left in floats or added to the totals.
struct Group {
  float* part;
  double* total;
  bool begins, ends;

  Group operator+(int64_t n) const { return {part + n, total + n, begins, ends}; }
  Lanes begin() const { return begins ? Lanes{} : load(part); }
  void end(Lanes sum) const { ends ? add(total, sum) : store(part, sum); }
};

// g_ck += Σ_i r_ci·x_ik for `w` classes and `v` x 16 features, over the rows of a tile. Rows as far ahead as a tile is
// long, which are mostly the next one's, are sent for meanwhile.
template <int w, int v>
void outer(const float* x, int64_t width, int64_t rows, const float* r, int64_t stride, Group g) {
  Lanes sum[w][v] = {};
  if (!g.begins)
    for (int c = 0; c < w; c++)
      for (int j = 0; j < v; j++) sum[c][j] = load(g.part + c * width + j * kLanes);
  for (int64_t i = 0; i < rows; i++) {
    Lanes features[v];
    for (int j = 0; j < v; j++) features[j] = load(x + i * width + j * kLanes);
    for (int j = 0; j < v; j++) __builtin_prefetch(x + (i + stride) * width + j * kLanes);
    for (int c = 0; c < w; c++)
      for (int j = 0; j < v; j++) sum[c][j] += features[j] * r[c * stride + i];
  }
  if (g.ends)
    for (int c = 0; c < w; c++)
      for (int j = 0; j < v; j++) add(g.total + c * width + j * kLanes, sum[c][j]);
  else
    for (int c = 0; c < w; c++)
      for (int j = 0; j < v; j++) store(g.part + c * width + j * kLanes, sum[c][j]);
}

// Calls `act` with the number of classes as a constant, which keeps the sums in registers.
template <int w = kTogether, typename Act>
void with_constant(int64_t classes, Act act) {
  if (classes == w) return act.template run<w>();
  if constexpr (w > 1) with_constant<w - 1>(classes, act);
}

// Calls act(first, how many) for all classes, in even shares of at most kTogether.
template <typename Act>
void in_shares(int64_t classes, Act act) {
  int64_t shares = (classes + kTogether - 1) / kTogether, size = (classes + shares - 1) / shares;
  for (int64_t first = 0; first < classes; first += size) act(first, first + size < classes ? size : classes - first);
}

struct Logits {
  const float *x, *theta;
  int64_t p, classes, stride;
  float* z;
  template <int w>
  void run() const {
    logits<w>(x, p, theta, classes, z, stride);
  }
};

struct Outer {
  const float *x, *r;
  int64_t rows, stride, width;
  Group g;
  template <int w>
  void run() const {
    int64_t k = 0;
    for (; k + 2 * kLanes <= width; k += 2 * kLanes) outer<w, 2>(x + k, width, rows, r, stride, g + k);
    if (k < width) outer<w, 1>(x + k, width, rows, r, stride, g + k);
  }
};

// Turns the softmax's numerators z (classes, 16 records) into residuals r = share·z - onehot(y), and gives Σ_c (kUp·r_c)²,
// added up in parts of kTerms classes.
inline Lanes subtract_label(float* z, int64_t stride, int64_t classes, Lanes share, Ints label) {
  Lanes total = {};
  for (int64_t from = 0; from < classes; from += kTerms) {
    Lanes part = {};
    for (int64_t c = from; c < classes && c < from + kTerms; c++) {
      const Lanes e = load(z + c * stride) * share, r = select(label == (int32_t)c, e - 1.0f, e), scaled = r * kUp;
      store(z + c * stride, r);
      part += scaled * scaled;
    }
    total += part;
  }
  return total;
}

// Turns the logits z (classes, 16 records) into weight·min(1, clip/norm)·r. `length` is |[x;1]|, and kUp·norm stays below
// 2^125 where that is finite, so nothing that matters is rounded to zero or to infinity.
inline void residuals(float* z, int64_t stride, int64_t classes, const int32_t* y, const float* weight, Lanes length,
                      float clip) {
  Lanes most = load(z), total = {};
  for (int64_t c = 1; c < classes; c++) {
    Lanes value = load(z + c * stride);
    most = select(value > most, value, most);
  }
  for (int64_t c = 0; c < classes; c++) {
    Lanes e = exp_negative(load(z + c * stride) - most);
    store(z + c * stride, e);
    total += e;
  }
  const Lanes norm = length * root(subtract_label(z, stride, classes, 1.0f / total, load(y)));
  const Lanes factor = load(weight) * select(norm > all(clip * kUp), clip * kUp / norm, all(1.0f));
  const Ints finite = norm < all(INFINITY);  // a record whose gradient is not finite says nothing at all
  for (int64_t c = 0; c < classes; c++) {
    Lanes r = load(z + c * stride) * factor;
    store(z + c * stride, select(finite, r, Lanes{}));
  }
}

}  // namespace fedsofim
