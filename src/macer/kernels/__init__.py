"""Fewer and faster kernels on a GPU; imports nothing of macer.

What each file replaces, for which networks, and what that gains: on one H200, one run each, in
thousands of noisy samples per second where no unit stands; docs/log/gpu.md has the settings.
`fuse_inference.py` and `fuse_training.py` put the layers of `layers.py` in the place of torch's,
`agreement.py` then compares the networks, and the plain one is run where the two differ.

file               in the place of                     networks          gain
-----------------  ----------------------------------  ----------------  --------------------------
noise.py           noise, addition, conversion; the    all               19,000 exact and 35,000
                   same bits as on a CPU                                 ordinary samples [1]
fuse_inference.py  convolution, shortcut and ReLU:     all               ResNet-110   90 → 147
                   cuDNN's function for all three                        ResNet-18   209 → 370
conv3x3.py         cuDNN's 3×3 of 16 or 32 channels    ResNet-20, -110   ResNet-110  147 → 291
- with pairs, stem.py and Projection                   and ResNet-18     ResNet-110  291 → 346 [2]
                                                                         ResNet-18   370 → 454 [2]
- in training, with batchnorm.py                       ResNet-20, -110   ResNet-110   19 → 43 [2]
stem.py            the first convolution, pooling and  LeNet, ResNet-18, LeNet's layer
                   ReLU; in training no pooling        -20, -110         1.91 → .41 ms
- in training, with Projection                         ResNet-18, -110   ResNet-110   43 → 48 [2]
layers.Projection  strided 1×1 convolutions            ResNets, wide14   only with stem.py [2]
- its StridedSlice torch's slice, in training          the same          like wide14 133 → 140
padding.py         channels that suit no tensor core   LeNet             1.52 → .79 ms for a layer,
                                                                         CAT-RS step 9.2 → 8.2 ms
pooling.py         2×2 max pooling                     LeNet             .35 → .08 ms for a layer
- in training, with the ReLU                           LeNet             never timed
batchnorm.py       batch-norm, shortcut and ReLU,      ResNets, wide14   ResNet-18    62 → 83 [3]
                   forwards and backwards, in training                   wide14      107 → 139 [4]
- FixedNormReLU    the same in eval mode: attacks on   ResNets, wide14   5 to 9% of a step of the
                   noise inside a step                                   record recipes [5]
launches.py        a step's launches by one graph      all               LeNet 6.75 → 2.50 ms
- pack, unpack     copies of buffers, one by one       all               only with batchnorm.py [3]

[1] Of the kernel alone. In a certification exact noise costs .3% more time than ordinary noise.
[2] Measured together only; the training runs before and after were separate ones.
[3] Measured together only.
[4] With its one projection; by torch.compile 140, and ResNet-110 in training 31 where ours is 49.
[5] Estimated from memory traffic, not yet measured alone: wide14 by macer-hard-noise.
"""
