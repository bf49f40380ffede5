"""Fewer and faster kernels on a GPU; imports nothing of macer.

The table says what each file replaces, in which networks, and what it gains. A gain is measured on
one H200: a step or a pass without this one thing, then with everything, in thousands of noisy
samples per second unless a unit stands there; docs/log/gpu.md has the settings.
`fuse_inference.py` and `fuse_training.py` put the layers of `layers.py` in the place of torch's.
`agreement.py` compares the two networks, and the plain one is run where they differ.

file               in the place of                     networks          gain
-----------------  ----------------------------------  ----------------  --------------------------
noise.py           noise, addition, conversion; the    all               19,000 exact and 35,000
                   same bits as on a CPU                                 ordinary samples [1]
fuse_inference.py  convolution, shortcut and ReLU:     all               wide14      345 → 631
                   cuDNN's function for all three                        ResNet-18   209 → 370 [2]
conv3x3.py         cuDNN's 3×3 of 16 or 32 channels    ResNet-20, -110   ResNet-110  152 → 368
- in training, with batchnorm.py                       the same          ResNet-110   19 → 43 [2]
stem.py            the first convolution, pooling and  LeNet, ResNet-18, LeNet     8,631 → 28,976
                   ReLU; in training no pooling        -20, -110         ResNet-18   429 → 481
- in training                                          the same          LeNet       870 → 925
                                                                         ResNet-18    89 → 93
layers.Projection  strided 1×1 convolutions, in        ResNets, wide14   ResNet-18   413 → 481
                   certification                                         wide14      624 → 631
padding.py         channels that suit no tensor core   LeNet             LeNet    10,681 → 28,976
- in training                                          the same          LeNet       503 → 925
pooling.py         2×2 max pooling                     LeNet             LeNet     3,813 → 28,976
- in training, with the ReLU                           the same          LeNet       688 → 925
batchnorm.py       batch-norm, shortcut and ReLU,      ResNets, wide14   wide14      104 → 136
                   forwards and backwards, in training                   ResNet-18    67 → 93
- FixedNormReLU    the same in eval mode: attacks on   ResNets, wide14   a step of the record
                   noise inside a step                                   recipes  56.5 → 76.9
launches.py        a step's launches by one graph      all               LeNet 6.75 → 2.50 ms [2]
- pack, unpack     copies of buffers, one by one       all               ResNet-110 43.3 → 47.1
                                                                         LeNet       868 → 925

What gains less than 5% on every network of a recipe is not kept: strided 1×1 convolutions as
products gained .3 to 3% in training. torch.compile around our 3×3 convolution and stem would
replace batchnorm.py. It reached 101, 99 and 94.8% of these rates, for a step of the record recipes,
ResNet-18 and ResNet-110, and the training began 23, 16 and 63 s later: 6 to 8% of a recipe of five
to seven minutes.

[1] Of the kernel alone. In a certification exact noise costs at most 1.2% more time than ordinary.
[2] From an earlier run; before and after were separate ones.
"""
