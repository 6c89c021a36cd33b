// Sixteen numbers side by side, in as many registers as this processor needs for them: one of AVX-512, two of AVX, four of
// SSE. What is computed does not depend on that, but for the roundings of fused multiply-adds, which SSE has not.
//
// Compilers have such vectors of any width, but keep those that are wider than a register in memory, 25 times slower.
#pragma once

#include <stdint.h>
#include <string.h>

namespace fedsofim {

constexpr int kLanes = 16;

#if defined(__AVX512F__)
constexpr int kWide = 16, kTogether = 10;  // lanes of a register; classes whose sums are kept in registers: 2 x 10 of 32
#elif defined(__AVX__)
constexpr int kWide = 8, kTogether = 3;    // 2 x 2 x 3 of 16
#else
constexpr int kWide = 4, kTogether = 2;    // 4 x 2 of 16, or all of them
#endif
constexpr int kParts = kLanes / kWide;

// A register of numbers, and one that may lie anywhere in memory.
template <typename T>
struct Register;
template <>
struct Register<float> {
  typedef float Wide __attribute__((vector_size(4 * kWide)));
  typedef float Loose __attribute__((vector_size(4 * kWide), aligned(4), may_alias));
};
template <>
struct Register<int32_t> {
  typedef int32_t Wide __attribute__((vector_size(4 * kWide)));
  typedef int32_t Loose __attribute__((vector_size(4 * kWide), aligned(4), may_alias));
};
template <typename T>
using Wide = typename Register<T>::Wide;
template <typename T>
using Loose = typename Register<T>::Loose;
typedef float Half __attribute__((vector_size(2 * kWide)));       // of a register
typedef double Doubles __attribute__((vector_size(4 * kWide)));   // as many numbers as Half
typedef double LooseDoubles __attribute__((vector_size(4 * kWide), aligned(8), may_alias));

template <typename T>
struct Side {
  Wide<T> part[kParts];
  T operator[](int64_t lane) const { return part[lane / kWide][lane % kWide]; }
};
typedef Side<float> Lanes;
typedef Side<int32_t> Ints;

// Applies `act` to each register: act(i) gives part i of the result.
template <typename T, typename Act>
inline Side<T> each_part(Act act) {
  Side<T> out;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; i++) out.part[i] = act(i);
  return out;
}

template <typename T>
inline Side<T> load_as(const T* from) {
  return each_part<T>([=](int i) { return (Wide<T>)((const Loose<T>*)from)[i]; });
}
inline Lanes load(const float* from) { return load_as(from); }
inline Ints load(const int32_t* from) { return load_as(from); }

inline void store(float* to, Lanes value) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; i++) ((Loose<float>*)to)[i] = value.part[i];
}

template <typename T>
inline Side<T> all_of(T value) {
  return each_part<T>([=](int) { return value - Wide<T>{}; });
}
inline Lanes all(float value) { return all_of(value); }

#define FEDSOFIM_OPERATOR(op)                                                                  \
  template <typename T>                                                                        \
  inline Side<T> operator op(Side<T> a, Side<T> b) {                                           \
    return each_part<T>([&](int i) { return a.part[i] op b.part[i]; });                        \
  }                                                                                            \
  inline Lanes operator op(Lanes a, float b) { return a op all(b); }                           \
  inline Lanes operator op(float a, Lanes b) { return all(a) op b; }
FEDSOFIM_OPERATOR(+)
FEDSOFIM_OPERATOR(-)
FEDSOFIM_OPERATOR(*)
FEDSOFIM_OPERATOR(/)
#undef FEDSOFIM_OPERATOR

inline Lanes& operator+=(Lanes& a, Lanes b) { return a = a + b; }
inline Ints operator<<(Ints a, int bits) {
  return each_part<int32_t>([&](int i) { return a.part[i] << bits; });
}
inline Ints operator&(Ints a, Ints b) {
  return each_part<int32_t>([&](int i) { return a.part[i] & b.part[i]; });
}

// -1 in the lanes where it is so, 0 elsewhere.
inline Ints operator<(Lanes a, Lanes b) {
  return each_part<int32_t>([&](int i) { return a.part[i] < b.part[i]; });
}
inline Ints operator>(Lanes a, Lanes b) { return b < a; }
inline Ints operator==(Ints a, int32_t b) {
  return each_part<int32_t>([&](int i) { return a.part[i] == b; });
}

// `a` in the lanes where it is so, `b` elsewhere.
inline Lanes select(Ints so, Lanes a, Lanes b) {
  return each_part<float>([&](int i) { return so.part[i] ? a.part[i] : b.part[i]; });
}

inline Ints bits_of(Lanes a) {
  return each_part<int32_t>([&](int i) { return (Wide<int32_t>)a.part[i]; });
}
inline Lanes as_floats(Ints a) {
  return each_part<float>([&](int i) { return (Wide<float>)a.part[i]; });
}

// The halves of a register, as doubles: those of part i are i and i + 1 of 2·kParts.
inline Doubles as_doubles(const Lanes& values, int half) {
  Half of;
  memcpy(&of, (const char*)&values.part[half / 2] + half % 2 * sizeof of, sizeof of);
  return __builtin_convertvector(of, Doubles);
}

inline void add(double* totals, Lanes values) {
#pragma GCC unroll 8
  for (int i = 0; i < 2 * kParts; i++) ((LooseDoubles*)totals)[i] += as_doubles(values, i);
}

// Sixteen sums in doubles, and the nearest floats of them.
struct Sums {
  Doubles half[2 * kParts];
  explicit Sums(double value) {
#pragma GCC unroll 8
    for (Doubles& h : half) h = Doubles{} + value;
  }
  void operator+=(Lanes values) {
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kParts; i++) half[i] += as_doubles(values, i);
  }
  Lanes nearest() const {
    Lanes out;
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kParts; i++) {
      const Half of = __builtin_convertvector(half[i], Half);
      memcpy((char*)&out.part[i / 2] + i % 2 * sizeof of, &of, sizeof of);
    }
    return out;
  }
};

// --- 16 rows of 16 numbers become 16 columns: four squares of side 4 at a time ---------------------------------------

typedef float Quarter __attribute__((vector_size(16)));
typedef float LooseQuarter __attribute__((vector_size(16), aligned(4), may_alias));

#if defined(__AVX512F__)
// each square within its quarter of the lanes, since crossing quarters costs more than loading them where they belong
typedef Wide<float> Square;
typedef float Eight __attribute__((vector_size(32)));
constexpr int kSquares = 1;

inline Square quarters(const float* rows, int64_t stride) {
  const auto row = [=](int i) { return (Quarter) * (const LooseQuarter*)(rows + i * stride); };
  const Eight lower = __builtin_shufflevector(row(0), row(4), 0, 1, 2, 3, 4, 5, 6, 7);
  const Eight upper = __builtin_shufflevector(row(8), row(12), 0, 1, 2, 3, 4, 5, 6, 7);
  return __builtin_shufflevector(lower, upper, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
inline Square zip_low(Square a, Square b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
inline Square zip_high(Square a, Square b) {
  return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
inline Square pairs_low(Square a, Square b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
inline Square pairs_high(Square a, Square b) {
  return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
#else
typedef Quarter Square;
constexpr int kSquares = 4;  // one after another

inline Square quarters(const float* rows, int64_t) { return *(const LooseQuarter*)rows; }
inline Square zip_low(Square a, Square b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Square zip_high(Square a, Square b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline Square pairs_low(Square a, Square b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); }
inline Square pairs_high(Square a, Square b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); }
#endif
typedef float LooseSquare __attribute__((vector_size(sizeof(Square)), aligned(4), may_alias));

inline void transpose(const float* rows, int64_t stride, float* out) {
  for (int k = 0; k < kLanes; k += 4, out += 4 * kLanes)
    for (int s = 0; s < kSquares; s++) {
      Square a[4];
      for (int i = 0; i < 4; i++) a[i] = quarters(rows + (4 * s + i) * stride + k, stride);
      const Square low[2] = {zip_low(a[0], a[1]), zip_low(a[2], a[3])};
      const Square high[2] = {zip_high(a[0], a[1]), zip_high(a[2], a[3])};
      const auto put = [=](int i, Square value) { *(LooseSquare*)(out + i * kLanes + 4 * s) = value; };
      put(0, pairs_low(low[0], low[1])), put(1, pairs_high(low[0], low[1]));
      put(2, pairs_low(high[0], high[1])), put(3, pairs_high(high[0], high[1]));
    }
}

}  // namespace fedsofim
